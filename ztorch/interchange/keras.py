"""Reads models that Keras saved: a Sequential or a functional Model, with weights."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ztorch.arguments import checked
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
def load_keras(path: str | os.PathLike[str], *, input_shape: Sequence[int] | None = None,
               ignore: Collection[str] = (), custom_objects: Any = None) -> Model:
    """Loads a model that Keras 3 saved: a Sequential, a functional Model, or one of your own class.

    Layers keep their names. A model that was compiled is compiled in the same way when it is first
    trained or evaluated, and its optimizer continues from its state.

    Args:
        path: The .keras file.
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
    source = os.fspath(path)
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
