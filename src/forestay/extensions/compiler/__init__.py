"""TypeScript and JavaScript extensions to one sandboxed module: bundle, rewrite, scan, infer, map (Pi §2, §2A, §2B)."""
