"""The figures that the project has set itself, beside what they were and what the machine allows. `make bars`."""
