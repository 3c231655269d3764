"""The built-in embedding model and the code that runs it fast."""
