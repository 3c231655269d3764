"""The HTTP API: document 002's routes and `/v1`."""
