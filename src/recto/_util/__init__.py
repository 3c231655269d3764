"""Helpers without knowledge of books or engines: files, retries, names."""
