"""Train the built-in model on readers' questions; see README.md."""
