"""Loads a saved or a live Keras model, with its weights."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ztorch.arguments import checked, file_name
from ztorch.errors import Unsupported, WeightsError
from ztorch.files.parsing import describing
from ztorch.files.zips import StoredZip
from ztorch.interchange.keras_assets import add_vocabularies
from ztorch.interchange.keras_reader import KerasReader
from ztorch.model.keras_compiling import compile_arguments
from ztorch.model.model import Model
from ztorch.names.own_classes import classes_by_name, known_as
from ztorch.weights import keras_files, keras_layouts, keras_optimizers
from ztorch.weights.files import whole_file


@checked
def load_keras(path: Any, *, input_shape: Sequence[int] | None = None,
               ignore: Collection[str] = (), custom_objects: Any = None) -> Model:
    """Loads a model of Keras 3: a Sequential, a functional Model, or one of your own class.

    Layers keep their names. A model that was compiled is compiled in the same way when it is first
    trained or evaluated, and its optimizer continues from its state.

    Args:
        path: The .keras file, or a live Keras model, which is saved to a temporary file and read.
        input_shape: The shape of one example, to fix axes that the file leaves open. None: they
            stay open. Default: `None`.
        ignore: Arguments of layers to leave out, such as "kernel_regularizer". Default: `()`.
        custom_objects: Classes and functions of yours that the file names (layers, models, losses,
            metrics, activations), as a list, or as a dict by name. Classes that are defined already
            are found by their class name, or by the name that
            `zt.saving.register_keras_serializable` gave them. Default: `None`.

    Returns:
        A Sequential or a Model with the weights of the file.

    Raises:
        WeightsError: The file is not a .keras file, or is damaged.
        Unsupported: The model uses features that ztorch lacks; the message lists them all. Or h5py
            is not installed: pip install ztorch[hdf5].

    Examples:
        >>> model = load_keras("digits.keras")     # doctest: +SKIP
        >>> program = model.compile("cpu")         # doctest: +SKIP
    """
    if is_live(path):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, f"{path.name}.keras")
            path.save(file)
            return _load(file, f"model {path.name!r}", input_shape, ignore, custom_objects)
    file_name("load_keras(path=...)", path)
    return _load(path, os.fspath(path), input_shape, ignore, custom_objects)


def _load(path: str | os.PathLike[str], source: str, input_shape: Sequence[int] | None,
          ignore: Collection[str], custom_objects: Any) -> Model:
    """The model in a file; error messages call the file `source`."""
    data = whole_file(path)
    archive = StoredZip(data, source) if data[:4] == b"PK\3\4" else None
    if archive is None or not keras_files.is_archive(archive):
        raise WeightsError(f"{source} is not a .keras file of Keras 3; write one with "
                           "model.save('model.keras')")
    reader = KerasReader(source, input_shape, frozenset(ignore))
    with known_as({} if custom_objects is None else classes_by_name(custom_objects)):
        with describing(source, keras_files.CONFIG):
            description = keras_files.config(archive)
            add_vocabularies(description, archive)
            model = reader.model(description)
            if not model.knows_inputs:
                _build_as_saved(model, description.get("build_config") or {}, source)
        model.load_weights(path)
        _compile_as_saved(model, archive, source)
    return model


def is_live(x: Any) -> bool:
    """Whether an object is a Keras model. Does not import Keras."""
    kinds = {f"{c.__module__.partition('.')[0]}.{c.__name__}" for c in type(x).__mro__}
    return "keras.Model" in kinds


def _build_as_saved(model: Model, build_config: Mapping[str, Any], source: str) -> None:
    """Builds a user-defined model for the input shapes that it was saved with, which creates its
    weights."""
    shapes = build_config.get("input_shape") or build_config.get("shapes_dict")
    if not shapes:
        raise Unsupported(f"{source} has no input shapes for {model.name!r}; call the model in "
                          "Keras before you save it")
    model.build(shapes)


def _compile_as_saved(model: Model, archive: StoredZip, source: str) -> None:
    """Arranges that a model which was saved compiled is compiled in the same way when it is first
    trained or evaluated."""
    description = keras_files.config(archive).get("compile_config")
    if not isinstance(description, dict) or (arguments := compile_arguments(description)) is None:
        return
    stored = keras_files.optimizer_variables(archive.read(keras_files.WEIGHTS), source)
    states = keras_optimizers.states(description["optimizer"], model, keras_layouts.parts(model),
                                     stored)

    def resume(program: Any) -> None:
        executable = program.executable
        for name, array in states.items():
            if name in executable.states:
                executable.set_state(name, array.astype(executable.states[name].dtype.numpy))

    model.compile_later({
        "device": "auto", "batch_size": None, "dtype": model.policy, "threads": None, "seed": None,
        "decode": False, "matmul_precision": "float32", "sizes": None, "memory_limit": None,
        **arguments}, resume)
