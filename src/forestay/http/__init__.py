"""HTTP: how programs reach the host. Each contract's bodies are that contract's; problems come from one table."""
