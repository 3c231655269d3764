"""A Qdrant server, Qdrant Cloud or a Qdrant cluster, through the official client."""
