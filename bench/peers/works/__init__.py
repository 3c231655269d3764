"""The pieces of work that all systems do, one module each."""
