"""Diagnose everything that a search depends on."""
