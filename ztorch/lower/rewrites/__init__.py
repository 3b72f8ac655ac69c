"""Rewrites of a graph before its values are grouped into regions."""
