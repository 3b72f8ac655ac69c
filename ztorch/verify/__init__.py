"""Compares a device's results with the meaning of a model's graph, layer by layer."""
