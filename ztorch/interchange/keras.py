"""Reads models that Keras saved: a Sequential or a functional Model, with weights."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from ztorch.arguments import checked
from ztorch.errors import WeightsError
from ztorch.files.parsing import parsing
from ztorch.files.zips import StoredZip
from ztorch.interchange.keras_reader import KerasReader
from ztorch.model.model import Model
from ztorch.weights import keras_files
from ztorch.weights.files import whole_file


@checked
def load_keras(path: str | os.PathLike[str], *, input_shape: Sequence[int] | None = None,
               ignore: Collection[str] = ()) -> Model:
    """Loads a model that Keras 3 saved: a Sequential, or a functional Model.

    Layers keep their names.

    Args:
        path: The .keras file.
        input_shape: The shape of a row of the input, where Keras left an axis open: shapes are
            fixed here. None: as in the file. Default: `None`.
        ignore: Arguments of layers to leave out, such as "kernel_regularizer". Default: `()`.

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
    with parsing(source, WeightsError, "describes no model", "save the model again",
                 keras_files.CONFIG):
        model = reader.model(keras_files.config(archive))
    model.load_weights(path)
    return model
