"""Writes .keras files, in the format of Keras' `model.save`."""

from __future__ import annotations

import io
import json
import os
import time
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch.files.atomic import need_name, write_atomic
from ztorch.layers.network import Network
from ztorch.weights import keras_files, keras_layouts, keras_optimizers
from ztorch.weights.keras_configs import KerasWriter

_VERSION = "3.8.0"  # of Keras, whose format this is
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # date of members, so that equal models have equal members


def save(model: Network, path: str | os.PathLike[str],
         compile_config: dict[str, Any] | None = None,
         states: Mapping[str, np.ndarray] | None = None) -> None:
    """Writes a model with its weights.

    Args:
        model: A Sequential or a functional Model, with layers that Keras has too.
        path: A file that ends in .keras.
        compile_config: The model's compile config in Keras' format. `None`: it was not compiled.
        states: The states of its optimizer, by name. `None`: it was not trained.

    Raises:
        Unsupported: Keras lacks some of its layers; or h5py is not installed.
    """
    need_name(path, "a model for Keras", ".keras", "use a path such as 'model.keras'")
    description = KerasWriter().model(model)
    if compile_config is not None:
        description["compile_config"] = compile_config
    model.need_memory(8)
    parts, optimizer = keras_layouts.parts(model), (compile_config or {}).get("optimizer")
    variables = [] if states is None or optimizer is None else (
        keras_optimizers.variables(optimizer, model, parts, states))
    weights = keras_files.write(parts, {w: w.value for w in model.weights}, model.name, variables)
    metadata = {"keras_version": _VERSION, "date_saved": time.strftime("%Y-%m-%d@%H:%M:%S")}
    members = {"metadata.json": json.dumps(metadata).encode(),
               keras_files.CONFIG: json.dumps(description).encode(),
               keras_files.WEIGHTS: weights}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, _FIRST_DAY), data)
    write_atomic(path, file.getvalue())
