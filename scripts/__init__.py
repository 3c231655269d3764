"""Scripts that generate files of the package."""
