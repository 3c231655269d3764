"""The `recto` command."""
