"""The embedded store: Qdrant Edge in this process."""
