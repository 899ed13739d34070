"""Untrusted extensions: sandboxed, capability-gated, with evidence."""
