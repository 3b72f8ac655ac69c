"""Runs compiled programs, without a compiler."""
