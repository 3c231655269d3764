"""Tests of the web UI with a real browser, service and book."""
