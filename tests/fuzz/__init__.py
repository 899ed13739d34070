"""Hostile bytes for every parser that reads what strangers write."""
