"""Reads models of Keras, saved or live: a Sequential or a functional Model, with weights."""

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
from ztorch.own_classes import classes_by_name, known_as
from ztorch.weights import keras_files, keras_layouts, keras_optimizers
from ztorch.weights.files import whole_file


@checked
def load_keras(path: Any, *, input_shape: Sequence[int] | None = None,
               ignore: Collection[str] = (), custom_objects: Any = None) -> Model:
    """Loads a model of Keras 3: a Sequential, a functional Model, or one of your own class.

    Layers keep their names. A model that was compiled is compiled in the same way when it is first
    trained or evaluated, and its optimizer continues from its state.

    Args:
        path: The .keras file, or the model itself, which then saves itself for a moment.
        input_shape: The shape of a row of the input, where Keras left an axis open, to fix
            it. None: as in the file, and such an axis stays open. Default: `None`.
        ignore: Arguments of layers to leave out, such as "kernel_regularizer". Default: `()`.
        custom_objects: Classes and functions of your own that the file names: layers, models,
            losses, metrics, activations, as a list, or as a dict by name. A class that is defined
            is found without, by its name or by its name in `zt.saving.register_keras_serializable`.
            Default: `None`.

    Returns:
        A Sequential or a Model with the weights of the file.

    Raises:
        WeightsError: It is no .keras file, or it is damaged.
        Unsupported: The model has something that ztorch lacks; the message lists all of it. Or h5py
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
    """The model of a file; errors call it `source`."""
    data = whole_file(path)
    archive = StoredZip(data, source) if data[:4] == b"PK\3\4" else None
    if archive is None or not keras_files.is_archive(archive):
        raise WeightsError(f"{source} is no .keras file of Keras 3; write one with "
                           "model.save('model.keras')")
    reader = KerasReader(source, input_shape, frozenset(ignore))
    with known_as({} if custom_objects is None else classes_by_name(custom_objects)):
        with describing(source, keras_files.CONFIG):
            described = keras_files.config(archive)
            add_vocabularies(described, archive)
            model = reader.model(described)
            if not model.knows_inputs:
                _build_as_saved(model, described.get("build_config") or {}, source)
        model.load_weights(path)
        _compile_as_saved(model, archive, source)
    return model


def is_live(x: Any) -> bool:
    """Whether this is a model of Keras, which is not imported here."""
    kinds = {f"{c.__module__.partition('.')[0]}.{c.__name__}" for c in type(x).__mro__}
    return "keras.Model" in kinds


def _build_as_saved(model: Model, build_config: Mapping[str, Any], source: str) -> None:
    """Builds a model of a class of users' own for the inputs that it had: it has weights then."""
    shapes = build_config.get("input_shape") or build_config.get("shapes_dict")
    if not shapes:
        raise Unsupported(f"{source} does not say for which inputs {model.name!r} was built; call "
                          "it there before you save it")
    model.build(shapes)


def _compile_as_saved(model: Model, archive: StoredZip, source: str) -> None:
    """Lets a model that was compiled be compiled again when it is trained or evaluated."""
    described = keras_files.config(archive).get("compile_config")
    if not isinstance(described, dict) or (arguments := compile_arguments(described)) is None:
        return
    stored = keras_files.optimizer_variables(archive.read(keras_files.WEIGHTS), source)
    states = keras_optimizers.states(described["optimizer"], model, keras_layouts.parts(model),
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
