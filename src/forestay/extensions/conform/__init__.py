"""The proof: real extensions, unmodified, against the real loader (Pi §6)."""
