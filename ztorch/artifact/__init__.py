"""Writes compiled programs to disk."""
