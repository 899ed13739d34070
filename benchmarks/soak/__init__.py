"""A soak: one real host under a mixed load at 80 % of its measured capacity. `make soak`."""
