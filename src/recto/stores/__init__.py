"""Stores: keep chunks with their vectors and search them."""
