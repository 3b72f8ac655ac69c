"""Our own files of weights: safetensors with names like `layer/weight`."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from ztorch.config import RESERVED
from ztorch.dtypes import dtype, from_storage
from ztorch.errors import WeightsError
from ztorch.files import safetensors
from ztorch.files.atomic import need_name

_FIX = "load it into a model with the same layers and names"


def write(path: str | os.PathLike[str], weights: Mapping[str, np.ndarray], model: str) -> None:
    """Writes arrays by name to a file, atomically."""
    need_name(path, "safetensors", ".safetensors", "name it .safetensors. For other formats, use "
              "model.save_weights(path)")
    safetensors.write(path, {name: (dtype(w.dtype), w) for name, w in weights.items()},
                      {"format": "ztorch weights", "model": model})


def read(path: str | os.PathLike[str], shapes: Mapping[str, tuple[int, ...]],
         model: str) -> dict[str, np.ndarray]:
    """The arrays of a file with these names and shapes, in this order. Raises a WeightsError for
    the first that does not fit."""
    tensors, _ = safetensors.read(path)
    return fitting_arrays(tensors, shapes, model, os.fspath(path))


def fitting_arrays(tensors: safetensors.Tensors, shapes: Mapping[str, tuple[int, ...]], model: str,
                   source: str, skip_mismatch: bool = False) -> dict[str, np.ndarray]:
    """The arrays with these names and shapes among the tensors of a file, in this order. Raises a
    WeightsError for the first that does not fit, unless `skip_mismatch`."""
    if skip_mismatch:
        return {name: from_storage(*tensors[name]) for name, shape in shapes.items()
                if name in tensors and tensors[name][1].shape == shape}
    for name, shape in shapes.items():
        if name not in tensors:
            raise WeightsError(f"{source} lacks weight {name!r} of shape {shape}; {_FIX}")
        actual = tensors[name][1].shape
        if actual != shape:
            raise WeightsError(f"weight {name!r} has shape {shape} in model {model!r} and {actual} "
                               f"in {source}; {_FIX}")
    for name, (_, array) in tensors.items():  # a checkpoint also holds the optimizer's states
        if name not in shapes and name.split("/")[0] not in RESERVED:
            raise WeightsError(f"{source} holds weight {name!r} of shape {array.shape}, which "
                               f"model {model!r} lacks; {_FIX}")
    return {name: from_storage(*tensors[name]) for name in shapes}
