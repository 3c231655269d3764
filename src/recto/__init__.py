"""Recto finds the right page of a textbook and proves that it does."""

__version__ = "0.1.0"
