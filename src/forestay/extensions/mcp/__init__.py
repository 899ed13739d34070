"""MCP servers as extensions (Tier C): configured by file, approved by fingerprint, their tools pinned by hash."""
