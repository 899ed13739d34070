"""The project's goals for its figures, beside the old figures and the machine's limits. `make bars`."""
