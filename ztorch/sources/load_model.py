"""`zt.load_model`: loads a model from any source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ztorch.arguments import checked
from ztorch.config import Named, positive
from ztorch.errors import ConfigError
from ztorch.model.model import Model
from ztorch.names.keras_calls import as_in_keras
from ztorch.names.own_classes import classes_by_name
from ztorch.runtime.load import open_artifact
from ztorch.sources.artifacts import compile_as_before, recipe_of
from ztorch.sources.find import find, is_artifact
from ztorch.sources.python_files import import_file
from ztorch.sources.shipped import take_shipped


@as_in_keras("path custom_objects compile safe_mode", {"filepath": "path"}, "compile safe_mode")
@checked
def load_model(path: str | os.PathLike[str], *, custom_objects: Any = None,
               size: int | None = None) -> Model:
    """Loads a model with its weights. It compiles, trains and exports like any other.

    Args:
        path: An artifact (.zt), a file of Keras (.keras), ONNX (.onnx) or torch.export (.pt2), a
            folder of Hugging Face (config.json and safetensors), the name of a model of the zoo
            (with trained weights if `ztorch zoo` says so), `path/to/file.py:attribute`, or a
            .safetensors file of weights, whose model is in the .py file of the same name beside it,
            or the one of the zoo that it names.
        custom_objects: Classes and functions of your own that the file names: layers, losses and
            optimizers, as a list, as a dict by name, or as the path of a Python file that defines
            them. Nothing else is imported. Default: `None`.
        size: For a folder of Hugging Face: the side of an image, for a ResNet, or the number of
            tokens. `None` means the image size in preprocessor_config.json, else 224, and leaves
            the number of tokens open. Default: `None`.

    Returns:
        The model. If it is from an artifact that trains, it is compiled in the same way when it is
        first trained or evaluated, and its optimizer resumes from its state.

    Raises:
        ArtifactError: The file is damaged, or does not declare a model; the message says why.
        ConfigError: Nothing has this name, or it takes no `size`.

    Examples:
        >>> import os, tempfile, numpy as np, ztorch as zt
        >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
        >>> path = os.path.join(tempfile.mkdtemp(), "small.zt")
        >>> model.compile("cpu", batch_size=8).save(path)
        >>> again = zt.load_model(path)
        >>> again.compile("cpu:scalar", batch_size=2).predict(np.ones((3, 4))).shape
        (3, 1)
    """
    name, classes = os.fspath(path), custom_classes(custom_objects)
    if size is not None:
        return _of_size(name, positive("zt.load_model(size=...)", size))
    if not is_artifact(name):
        recipe = find(name, classes)
        take_shipped(recipe)
        return recipe.model
    artifact = open_artifact(name)
    recipe = recipe_of(artifact, classes)
    compile_as_before(recipe, artifact)
    return recipe.model


def _of_size(name: str, size: int) -> Model:
    """The model of a folder of Hugging Face, for images or sequences of a size."""
    from ztorch.interchange.hugging_face import load_folder

    if not (Path(name) / "config.json").is_file():
        raise ConfigError(f"zt.load_model(size={size}): {name} is not a folder of Hugging Face; "
                          "zt.onnx.load(path, sizes=...) and zt.torch_export.load take sizes")
    return load_folder(name, size)


def custom_classes(objects: Any) -> Mapping[str, type]:
    """User-defined classes by name, from an argument: classes, or a Python file with some."""
    if objects is None:
        return {}
    if isinstance(objects, (str, os.PathLike)):
        module = import_file(Path(objects))
        objects = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Named)
                   and c.__module__ == module.__name__]
    return classes_by_name(objects)
