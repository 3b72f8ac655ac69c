"""Tensors: arrays on a device with NumPy's methods. Operations are recorded, and computed when a
value is needed."""
