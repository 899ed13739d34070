"""MCP servers as extensions (Tier C): files configure them, people approve their fingerprint and pin their tools."""
