"""The version of ztorch, which artifacts name."""

__version__ = "0.1.0"
