"""Durable workflows (OpenWOP 1.11): carry a run to its end, whatever dies on the way."""
