"""Compares the sandbox with the real loader, on real, unmodified extensions (Pi §6)."""
