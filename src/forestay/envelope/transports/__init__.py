"""How an envelope travels: HTTP, gRPC, MCP, A2A. Each module imports its own packages; nothing is imported here."""
