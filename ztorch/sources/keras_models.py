"""What `keras.models` has: `zt.models`, until a model of the zoo is imported, and there too."""

from __future__ import annotations

from ztorch.model.model import Model
from ztorch.model.sequential import Sequential
from ztorch.sources.load_model import load_model

__all__ = ["Model", "Sequential", "load_model"]
