"""Embedders: text to vectors, on this machine or by a service."""
