"""Reports for a browser: one HTML file that needs no network, no script and nothing beside it."""
