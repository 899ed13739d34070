"""Run other people's tools: sandboxed, capability-gated, with evidence (Pi extension system v1)."""
