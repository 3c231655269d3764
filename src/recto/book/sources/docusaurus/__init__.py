"""Docusaurus sites, read as text without running them."""
