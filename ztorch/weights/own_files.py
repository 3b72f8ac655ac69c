"""Weights in our own files: safetensors, named `layer/weight`."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from ztorch.config import RESERVED
from ztorch.dtypes import dtype, from_storage
from ztorch.errors import WeightsError
from ztorch.files import safetensors
from ztorch.files.atomic import need_name

_FIX = "load it into a model with the layers and names it comes from"


def write(path: str | os.PathLike[str], weights: Mapping[str, np.ndarray], model: str) -> None:
    """Writes the arrays, all or nothing."""
    need_name(path, "safetensors", ".safetensors", "name it .safetensors. A model can "
                         "write .weights.h5 for Keras: model.set_weights(program.get_weights()), "
                         "then model.save_weights(path)")
    safetensors.write(path, {name: (dtype(w.dtype), w) for name, w in weights.items()},
                     {"format": "ztorch weights", "model": model})


def read(path: str | os.PathLike[str], shapes: Mapping[str, tuple[int, ...]],
         model: str) -> dict[str, np.ndarray]:
    """The arrays of those names, in order; the first that does not fit is an error."""
    found, _ = safetensors.read(path)
    return fitting(found, shapes, model, os.fspath(path))


def fitting(found: safetensors.Tensors, shapes: Mapping[str, tuple[int, ...]], model: str,
            where: str) -> dict[str, np.ndarray]:
    """The arrays of those names among the ones found; the first that does not fit is an error."""
    for name, shape in shapes.items():
        if name not in found:
            raise WeightsError(f"{where} lacks weight {name!r} of shape {shape}; {_FIX}")
        given = found[name][1].shape
        if given != shape:
            raise WeightsError(f"weight {name!r} has shape {shape} in model {model!r} and {given} "
                               f"in {where}; {_FIX}")
    for name, (_, array) in found.items():  # a checkpoint also holds the optimizer's states
        if name not in shapes and name.split("/")[0] not in RESERVED:
            raise WeightsError(f"{where} holds weight {name!r} of shape {array.shape}, which model "
                               f"{model!r} lacks; {_FIX}")
    return {name: from_storage(*found[name]) for name in shapes}
