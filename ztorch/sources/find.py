"""Finds a model by its name or path, and its training settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ztorch.errors import ConfigError, Unsupported, unknown
from ztorch.host import assets
from ztorch.sources.python_files import import_file, recipe_in
from ztorch.sources.recipe import Recipe, as_compiled, imported
from ztorch.terminal.work_line import working

_PROGRAMS = {  # files of other compilers by suffix, and how to convert them
    ".mlir": "MLIR, such as StableHLO; export the model as ONNX",
    ".stablehlo": "StableHLO; export the model as ONNX",
    ".pb": "a graph of TensorFlow; tf2onnx writes it as ONNX",
    ".tflite": "a model of TensorFlow Lite; tf2onnx writes it as ONNX",
}
_ONLY_WEIGHTS = (".h5", ".pt", ".pth", ".npz", ".npy", ".gguf")  # files without a model


def zoo() -> list[str]:
    """The names of the models that ship with ztorch.

    >>> "digits_mlp" in zoo()
    True
    """
    return sorted(p.stem for p in assets.folder("models").glob("[a-z]*.py"))


def is_artifact(name: str) -> bool:
    """Whether a name is that of an artifact: a .zt file, or a file without a suffix."""
    path = Path(name)
    return path.suffix.lower() == ".zt" or (not path.suffix and path.is_file())


def find(name: str, custom: Mapping[str, type] | None = None) -> Recipe:
    """The model with a name or path: one of the zoo, an attribute of a Python file, or a file.

    An attribute, `path/to/file.py:attribute`, is a Sequential or a Model, or a function without
    arguments that returns one (default: `build`, else the model that the file has). Large models
    of the zoo have a small variant, `name:small`. Files are artifacts (.zt), models of Keras
    (.keras), ONNX (.onnx) and torch.export (.pt2), and weights (.safetensors) whose model is in the
    Python file of the same name, or in the zoo. A folder is one of Hugging Face, with config.json
    and safetensors.

    Args:
        name: The name or path.
        custom: User-defined classes that an artifact may name, by name. Default: `None`.

    Examples:
        >>> find("digits_mlp").data, find("resnet18:small").data
        ('digits', 'shapes_64')
    """
    with working(f"load {name}"):
        recipe = _from_file(name, custom)
    if recipe is not None:
        return as_compiled(recipe)
    if name and name not in zoo() and Path(name).is_dir():
        raise ConfigError(f"the folder {name} has no config.json, so it is not a model of Hugging "
                          "Face; name a file in it. To train on a folder of data, name a "
                          f"model: ztorch train net.py --data {name}")
    name = name.removesuffix(":")
    path, _, attribute = name.partition(".py:") if ".py:" in name else (name, "", "")
    if attribute or path.endswith(".py"):
        file = Path(path if path.endswith(".py") else f"{path}.py")
        return as_compiled(recipe_in(import_file(file), attribute))
    return _of_zoo(name)


def _from_file(name: str, custom: Mapping[str, type] | None) -> Recipe | None:
    """The model of a file or a folder; None for a name of the zoo or a Python file."""
    suffix = Path(name).suffix.lower()
    if (Path(name) / "config.json").is_file():
        from ztorch.interchange.hugging_face import load_folder

        return imported(load_folder(name))
    if is_artifact(name):
        from ztorch.runtime.load import open_artifact
        from ztorch.sources.artifacts import recipe_of

        return recipe_of(open_artifact(name), custom)
    if suffix == ".keras":
        from ztorch.interchange.keras import load_keras

        return imported(load_keras(name, custom_objects=custom))
    if suffix == ".onnx":
        from ztorch.interchange import onnx

        return imported(onnx.load(name))
    if suffix == ".pt2":
        from ztorch.interchange import torch_export

        return imported(torch_export.load(name))
    if suffix == ".safetensors":
        return _of_weights(name)
    if suffix in _PROGRAMS:
        raise Unsupported(f"{name} is {_PROGRAMS[suffix]}, which is read")
    if suffix in _ONLY_WEIGHTS:
        raise ConfigError(f"{name} holds only weights; name their model, and pass the file as "
                          f"--weights {name}, or to model.load_weights")
    return None


def _of_zoo(name: str) -> Recipe:
    name, _, variant = name.partition(":")
    if name not in zoo():
        raise ConfigError(f"{unknown('model', name, zoo())}, path/to/file.py:attribute, a file "
                          "named .zt, .keras, .onnx or .pt2, or a folder with config.json")
    if variant not in ("", "small"):
        raise ConfigError(f"model {name!r} has no variant {variant!r}; large ones have "
                          f"{name}:small")
    folder = assets.folder("models")
    recipe = recipe_in(import_file(folder / f"{name}.py"), "build", bool(variant))
    weights = folder / "trained" / f"{name}.safetensors"
    return replace(recipe, shipped=weights) if not variant and weights.is_file() else recipe


def _of_weights(path: str) -> Recipe:
    """The model of a file of weights: that of `net.py` beside `net.safetensors`, or the model of
    the zoo that the file names."""
    from ztorch.files import safetensors

    beside = Path(path).with_suffix(".py")
    if beside.is_file():
        recipe = recipe_in(import_file(beside))
    else:
        _, notes = safetensors.read(path)
        model = notes.get("model", "")
        if model not in zoo():
            raise ConfigError(f"{path} holds only weights, there is no {beside.name} beside it, "
                              f"and the zoo has no model {model!r}; name their model, and pass the "
                              f"file as --weights {path}, or to model.load_weights")
        recipe = _of_zoo(model)
    recipe.model.load_weights(path)
    return replace(recipe, trained=True)
