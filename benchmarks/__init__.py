"""What forestay costs, measured beside what a user would pick instead, in one run on one machine."""
