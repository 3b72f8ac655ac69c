"""What `model.compile` and `zt.load` return."""
