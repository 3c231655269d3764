"""Books: read pages from a source and split them into chunks."""
