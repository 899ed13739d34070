"""Measures what forestay costs, and beside it the alternatives that a user could choose, in one run on one machine."""
