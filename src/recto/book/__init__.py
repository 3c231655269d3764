"""From a book's files to chunks: source, page, section, chunk."""
