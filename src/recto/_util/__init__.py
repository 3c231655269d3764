"""Helpers that know nothing of books or engines: files, locks, retries, text, numbers."""
