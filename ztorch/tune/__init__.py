"""Measures schedules on this machine, and remembers the fastest."""
