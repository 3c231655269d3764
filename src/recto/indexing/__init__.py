"""Indexing: plan, embed, build, verify and publish."""
