"""The values that all parts share, by what they belong to: a book, an index or a search."""
