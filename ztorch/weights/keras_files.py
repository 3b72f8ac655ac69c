"""Reads and writes files of Keras 3, .weights.h5 and .keras, with h5py and without Keras."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ztorch.dtypes import ALL, from_storage
from ztorch.errors import Unsupported, WeightsError
from ztorch.files.parsing import parsing
from ztorch.files.zips import StoredZip
from ztorch.layers.weight import Weight
from ztorch.weights.modules import FileModule, ModelPart, StoredTensor

SIGNATURE = b"\x89HDF\r\n\x1a\n"
CONFIG, WEIGHTS = "config.json", "model.weights.h5"
_MOST_CONFIG = 64 << 20  # bytes of config.json
_MOST_GROUPS = 100_000  # more than any model has
_MOST_DEPTH = 64  # groups in groups
_STORED_AS_CODES = {d.long: d for d in ALL if not d.in_numpy}  # by name in files
_NO_LAYERS = (  # groups without weights of layers
    "optimizer", "seed_generator", "_loss_tracker", "_compile_metrics", "metrics")


def is_archive(archive: StoredZip) -> bool:
    """Whether a zip file is a .keras archive."""
    return CONFIG in archive and WEIGHTS in archive


def config(archive: StoredZip) -> dict[str, Any]:
    """The model's config in a .keras archive."""
    with parsing(archive.where, WeightsError, f"is damaged: its {CONFIG} is not a config",
                 "save the model again"):
        if archive.size(CONFIG) > _MOST_CONFIG:
            raise ValueError(f"{archive.size(CONFIG):,} bytes")
        description: dict[str, Any] = json.loads(archive.read(CONFIG))
        if not isinstance(description, dict):
            raise ValueError("no object")
    return description


@contextmanager
def reading(data: bytes, source: str, with_layer_names: bool) -> Iterator[list[FileModule]]:
    """The groups with weights of a .weights.h5 file. Arrays can be read while it is open.

    `with_layer_names` adds the names of layers to the paths of groups. These are strings of any
    length, in which the HDF5 library may loop forever if the file is damaged, so they are read only
    if needed.
    """
    h5py = _h5py()
    with parsing(source, WeightsError, "is damaged or truncated", "copy or write it again"):
        _check_heaps(data)
        with h5py.File(io.BytesIO(data), "r") as file:
            if "layer_names" in file.attrs or "model_weights" in file:
                raise Unsupported(f"{source} was written by Keras 2; load it there or in Keras 3, "
                                  "and write it with model.save_weights('x.weights.h5')")
            yield list(_modules(h5py, file, source, with_layer_names))


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise Unsupported("files of Keras are HDF5 files, which need h5py: pip install "
                          "ztorch[hdf5]") from None
    return h5py


def _check_heaps(data: bytes) -> None:
    """Raises an error unless the heaps, which hold strings, are filled with objects up to their
    end: otherwise the HDF5 library may loop forever."""
    if data[:8] == SIGNATURE and data[8:9]:
        lengths = data[14] if data[8] < 2 else data[10]
        if lengths != 8:
            raise ValueError(f"its sizes have {lengths} bytes, not 8")
    for heap in re.finditer(rb"GCOL\x01\0\0\0", data):
        at = heap.end() + 8
        end = heap.start() + int.from_bytes(data[heap.end():at], "little")
        if end > len(data):
            raise ValueError("a heap extends past its end")
        while at + 16 <= end:
            number, size = data[at:at + 2], int.from_bytes(data[at + 8:at + 16], "little")
            at += size if number == b"\0\0" else 16 + -(-size // 8) * 8
            if at > end or (number == b"\0\0" and at < end):  # free space comes last
                raise ValueError("the objects of a heap do not add up to it")


def _modules(h5py: Any, file: Any, source: str, with_layer_names: bool) -> Iterator[FileModule]:
    """The groups with weights, by their paths and, if requested, by the names of layers."""
    stack: list[tuple[Any, tuple[str, ...], tuple[str, ...]]] = [(file, (), ())]
    count = 0
    while stack:
        group, path, names = stack.pop()
        count += 1
        if count > _MOST_GROUPS or len(path) > _MOST_DEPTH:
            raise ValueError("it has more groups than any model")
        below = _members(h5py, group, source)
        variables = _members(h5py, below["vars"], source) if "vars" in below else {}
        if variables:
            folder = "/".join(path)
            tensors = {key: _stored(h5py, variables[key], "/".join([*path, "vars", key]), source)
                       for key in sorted(variables, key=lambda k: (len(k), k))}
            layer_names = ["/".join(names)] if with_layer_names else []
            yield FileModule((folder, *layer_names), tensors)
        for key, inner in reversed(below.items()):
            if isinstance(inner, h5py.Group) and key != "vars" and key not in _NO_LAYERS:
                name = _layer_name(h5py, inner, source) if with_layer_names else ()
                stack.append((inner, (*path, _current_name(key)), (*names, *name)))


def _members(h5py: Any, group: Any, source: str) -> dict[str, Any]:
    """The members of a group. Raises an error for links, which could point to other files."""
    if not isinstance(group, h5py.Group):
        return {}
    for key in group:
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise WeightsError(f"{source} has a link {key[:80]!r}, which files of Keras never "
                               "have; do not use it")
    return dict(group.items())


def _current_name(key: str) -> str:
    """The name of a group in current versions of Keras: without an underscore, and `layers`."""
    return "layers" if key == "_layer_checkpoint_dependencies" else key.removeprefix("_")


def _layer_name(h5py: Any, group: Any, source: str) -> tuple[str, ...]:
    """The name of the layer of a group. Cells of recurrent layers are left out: ours have none."""
    variables = _members(h5py, group, source).get("vars")
    name = variables.attrs.get("name") if variables is not None else None
    return (name,) if isinstance(name, str) and not name.endswith("_cell") else ()


def _stored(h5py: Any, dataset: Any, name: str, source: str) -> StoredTensor:
    if not isinstance(dataset, h5py.Dataset) or dataset.external or dataset.is_virtual:
        raise WeightsError(f"{source}: {name} does not have its numbers in this file; do not "
                           "use it")
    if dataset.chunks is not None:  # compressed chunks may expand to any size
        raise WeightsError(f"{source}: {name} is stored in chunks, which files of Keras never "
                           "are; rewrite it: h5repack -l CONTI -f NONE")
    stored_bytes = dataset.id.get_storage_size()
    expected_bytes = dataset.size * dataset.dtype.itemsize
    if stored_bytes != expected_bytes:
        raise ValueError(f"{name} has {stored_bytes} bytes, not {expected_bytes}")

    def load() -> np.ndarray:
        d = dataset.dtype
        coded = _STORED_AS_CODES.get(str(dataset.attrs.get("dtype")))
        if coded is not None and d.itemsize == coded.bytes and d.kind in "uV":
            return from_storage(coded, dataset[()].view(coded.numpy))
        if d.kind not in "fiu":
            raise WeightsError(f"{source}: {name} holds {d}, not numbers")
        return dataset[()]

    return StoredTensor(tuple(dataset.shape), load)


def optimizer_variables(data: bytes, source: str) -> list[np.ndarray]:
    """The variables of the optimizer in a .weights.h5 file; empty if it has none."""
    h5py = _h5py()
    with parsing(source, WeightsError, "is damaged or truncated", "copy or write it again"):
        _check_heaps(data)
        with h5py.File(io.BytesIO(data), "r") as file:
            group = _members(h5py, file, source).get("optimizer")
            stored = _members(h5py, group, source).get("vars")
            variables = _members(h5py, stored, source)
            return [_stored(h5py, variables[key], f"optimizer/vars/{key}", source).load()
                    for key in sorted(variables, key=int)]


def write(parts: Sequence[ModelPart], values: Mapping[Weight, np.ndarray], model: str,
          optimizer: Sequence[np.ndarray] = ()) -> bytes:
    """The bytes of a .weights.h5 file, as Keras would write it for the same layers and an optimizer
    with these variables."""
    file = io.BytesIO()
    with _h5py().File(file, "w") as root:
        root.create_group("vars").attrs["name"] = model
        for part in parts:
            path, name = part.names
            group = root.create_group(f"{path}/vars") if path else root["vars"]
            group.attrs["name"] = name.rpartition("/")[2] or model
            for key, array in part.write(values).items():
                group[key] = array
        if optimizer:
            group = root.create_group("optimizer/vars")
            group.attrs["name"] = "optimizer"
            for k, array in enumerate(optimizer):
                group[str(k)] = array
    return file.getvalue()
