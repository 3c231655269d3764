"""Parse Markdown and HTML into sections of blocks."""
