"""Sites that are built from a book's files: which files are pages, and where they are published."""
