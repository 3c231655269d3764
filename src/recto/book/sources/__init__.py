"""Sources: where the pages of a book come from."""
