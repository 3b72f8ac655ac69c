"""A model's weights on disk: in our files, in those of Keras and in those of PyTorch."""

from ztorch.weight_files.named import read, write

__all__ = ["read", "write"]
