"""Tensors: arrays on a device, with NumPy's verbs, which record what is asked and compute it when
a value is needed."""
