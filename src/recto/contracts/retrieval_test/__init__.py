"""Document 003: retrieval functions and the retrieval test command."""
