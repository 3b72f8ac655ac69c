"""Reads a folder of Hugging Face: its config, and its tensors in one safetensors file or shards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ztorch.dtypes import from_storage
from ztorch.errors import Unsupported, WeightsError
from ztorch.files import safetensors
from ztorch.files.parsing import parsing
from ztorch.weights.files import whole_file

CONFIG = "config.json"
IMAGES = "preprocessor_config.json"  # how images are resized and cropped before the model
WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MOST_BYTES = 16 << 20  # of a JSON file
MOST_BLOCKS = 4096  # of a model, ten times as many as the deepest one has


class Config:
    """The settings of a model, with errors that name the file.

    Args:
        values: The contents of the file.
        path: The file.
    """

    def __init__(self, values: Mapping[str, Any], path: str):
        self.values, self.path = values, path

    @property
    def architecture(self) -> str:
        """The class of transformers that wrote the folder."""
        names = self.values.get("architectures")
        return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""

    def size(self, name: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self.values.get(name)
        value = default if value is None else value
        if type(value) is not int or not 0 < value < 2**31:
            raise WeightsError(f"{self.path}: {name!r} is {value!r}, not a positive integer")
        return value

    def depth(self, name: str) -> int:
        """The number of blocks of a model."""
        return self._checked_depths(name, (self.size(name),))[0]

    def depths(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """The number of blocks in each stage of a model."""
        return self._checked_depths(name, self.sizes(name, default))

    def _checked_depths(self, name: str, blocks: tuple[int, ...]) -> tuple[int, ...]:
        if sum(blocks) > MOST_BLOCKS:
            raise WeightsError(f"{self.path}: {name!r} means {sum(blocks)} blocks; ztorch reads "
                               f"models of up to {MOST_BLOCKS}")
        return blocks

    def sizes(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Positive integers."""
        value = self.values.get(name, list(default))
        if not isinstance(value, list) or not value or any(
                type(n) is not int or not 0 < n < 2**31 for n in value):
            raise WeightsError(f"{self.path}: {name!r} is {value!r}, not a list of positive "
                               "integers")
        return tuple(value)

    def number(self, name: str, default: float) -> float:
        """A finite number that is not negative."""
        value = self.values.get(name, default)
        if type(value) not in (int, float) or not 0 <= value < 1e30:
            raise WeightsError(f"{self.path}: {name!r} is {value!r}, not a number")
        return float(value)

    def text(self, name: str, default: str) -> str:
        """A string."""
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise WeightsError(f"{self.path}: {name!r} is {value!r}, not a string")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise WeightsError(f"{self.path}: {name!r} is {value!r}, neither true nor false")
        return value

    def classes(self) -> int:
        """The number of classes of a classification head."""
        labels = self.values.get("id2label")
        return self.size("num_labels", len(labels) if isinstance(labels, dict) and labels else 2)

    def only(self, **expected: Any) -> None:
        """Raises Unsupported where a setting has another value than the one that is supported;
        without the setting, it has that value."""
        for name, value in expected.items():
            if (actual := self.values.get(name, value)) != value:
                raise Unsupported(f"{self.path}: {name}={actual!r}; ztorch reads models with "
                                  f"{value!r}")


class Tensors:
    """The tensors of a folder by name, as float32.

    Args:
        stored: Tensors as the files hold them.
        path: The folder.
        prefixes: Prefixes that models with a head may put before the names of the inner model.
    """

    def __init__(self, stored: safetensors.Tensors, path: str, prefixes: tuple[str, ...]):
        self.stored, self.path, self.prefixes = stored, path, (*prefixes, "")

    def __contains__(self, name: str) -> bool:
        return any(prefix + name in self.stored for prefix in self.prefixes)

    def __call__(self, name: str) -> np.ndarray:
        """The tensor of that name, with or without a prefix."""
        full = next((p + name for p in self.prefixes if p + name in self.stored), None)
        if full is None:
            raise WeightsError(f"{self.path} has no tensor {self.prefixes[0] + name!r}, which its "
                               f"{CONFIG} needs; save the model again")
        d, array = self.stored[full]
        return np.asarray(from_storage(d, array), np.float32)


Source = Callable[[Tensors], np.ndarray]  # computes the value of a weight


def read_config(folder: Path) -> Config:
    """The config of a folder."""
    path = folder / CONFIG
    return Config(_json(path), str(path))


def image_side(folder: Path) -> int | None:
    """The side of square input images, if the folder says how they are prepared."""
    path = folder / IMAGES
    sizes = _json(path) if path.is_file() else {}
    for size in (sizes.get("crop_size"), sizes.get("size")):
        side = size if isinstance(size, int) else size.get(
            "height", size.get("shortest_edge")) if isinstance(size, dict) else None
        if type(side) is int and 0 < side < 2**16:
            return side
    return None


def read_tensors(folder: Path) -> safetensors.Tensors:
    """The tensors of all files of a folder."""
    index = folder / INDEX
    if (folder / WHOLE).is_file():
        names = [WHOLE]
    elif index.is_file():
        file_of_tensor = _json(index).get("weight_map")
        if not isinstance(file_of_tensor, dict) or not file_of_tensor or not all(
                isinstance(n, str) and n.endswith(".safetensors") and Path(n).name == n
                for n in file_of_tensor.values()):
            raise WeightsError(f"{index} does not say which file beside it holds which tensor")
        names = sorted(set(file_of_tensor.values()))
    else:
        raise WeightsError(f"{folder} has neither {WHOLE} nor {INDEX}; write it again with "
                           "model.save_pretrained(folder, safe_serialization=True)")
    tensors: safetensors.Tensors = {}
    for name in names:
        file = folder / name
        tensors |= safetensors.unpack(whole_file(file), str(file))[0]
    return tensors


def _json(path: Path) -> dict[str, Any]:
    data = whole_file(path)
    with parsing(str(path), WeightsError, "is not the JSON of a model", "save the model again"):
        if len(data) > MOST_BYTES:
            raise ValueError(f"it has {len(data)} bytes")
        values = json.loads(data)
        if not isinstance(values, dict):
            raise ValueError("it holds no object")
    return values
