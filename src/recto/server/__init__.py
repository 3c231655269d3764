"""Servers: the HTTP API with its web UI, and the MCP server."""
