"""Examine everything that a search depends on, and say for each finding what repairs it."""
