"""Shared by the families of cases: one-line models, and the data to compile them for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ztorch as zt
from ztorch import layers as L

Case = Callable[[], Any]


def begins(*shape: int, dtype: str | None = None) -> Callable[..., zt.Sequential]:
    """Builds a Sequential of the given layers on inputs of this shape."""

    def build(*layers: L.Layer) -> zt.Sequential:
        model = zt.Sequential([L.Input(shape, dtype=dtype), *layers], name="net")
        model.build()
        return model

    return build


row, steps, image, ids = begins(6), begins(7, 6), begins(8, 8, 3), begins(7, dtype="int32")


def trained(*layers: L.Layer, **how: Any) -> Any:
    """Traces training on a row of 6 numbers."""
    return row(*layers).trace(4, **{"optimizer": "sgd", "loss": "mse", **how})


def rows(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 10
