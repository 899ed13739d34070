"""Programs for the project's developers."""
