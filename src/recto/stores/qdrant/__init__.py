"""The Qdrant server store, for a server, Qdrant Cloud or a cluster."""
