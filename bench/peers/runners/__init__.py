"""One small program for each system; it runs in that system's own environment and speaks JSON lines."""
