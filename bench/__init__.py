"""Benchmarks: every ratio is measured side by side in one run."""
