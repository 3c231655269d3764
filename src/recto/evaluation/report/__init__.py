"""Evaluation reports as self-contained HTML and JUnit XML."""
