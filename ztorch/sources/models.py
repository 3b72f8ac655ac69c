"""What `keras.models` has: users reach it as `zt.models`."""

from __future__ import annotations

from ztorch.model.model import Model
from ztorch.model.sequential import Sequential
from ztorch.sources.load_model import load_model

__all__ = ["Model", "Sequential", "load_model"]
