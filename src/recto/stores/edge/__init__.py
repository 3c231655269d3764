"""The embedded store: Qdrant Edge in this process, behind a layer that makes it safe to share."""
