"""Checks, layer by layer, whether a device computes the same as the model's graph."""
