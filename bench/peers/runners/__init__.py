"""One small program for each system, which runs in the system's environment and exchanges JSON lines."""
