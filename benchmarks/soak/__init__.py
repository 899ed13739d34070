"""A soak: one real host under a mixed load at 80 % of what it was measured to carry. `make soak`."""
