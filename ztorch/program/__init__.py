"""The programs that `model.compile` and `zt.load` return."""
