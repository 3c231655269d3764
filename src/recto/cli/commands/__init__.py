"""The commands of `recto`, one module each."""
