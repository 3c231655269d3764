"""Websites: crawl the pages of a published book."""
