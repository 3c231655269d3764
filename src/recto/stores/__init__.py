"""Stores: where vectors and chunks are kept and searched."""
