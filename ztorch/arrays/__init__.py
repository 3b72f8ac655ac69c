"""Tensors: arrays on a device, with NumPy's verbs, which record operations and compute them when
a value is needed."""
