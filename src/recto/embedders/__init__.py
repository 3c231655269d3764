"""Embedders: turn text into vectors, locally or with a service."""
