"""Entry points that the specification documents define."""
