"""Loop nests on a processor."""
