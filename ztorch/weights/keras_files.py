"""Files of Keras 3: .weights.h5 and the .keras archive. h5py is needed, Keras is not."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ztorch.dtypes import bf16, from_storage
from ztorch.errors import ConfigError, Unsupported, WeightsError
from ztorch.files.zips import StoredZip
from ztorch.layers.weight import Weight
from ztorch.weights.parts import Module, Part, Stored

SIGNATURE = b"\x89HDF\r\n\x1a\n"
CONFIG, WEIGHTS = "config.json", "model.weights.h5"
_MOST_CONFIG = 64 << 20
_MOST_GROUPS, _MOST_DEPTH = 100_000, 64
_NO_LAYERS = ("optimizer", "seed_generator", "_loss_tracker", "_compile_metrics", "metrics")
_FAULTS = (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError, IndexError,
           OverflowError, MemoryError, SystemError)


def is_archive(archive: StoredZip) -> bool:
    """Whether this zip is one that Keras' model.save writes."""
    return CONFIG in archive and WEIGHTS in archive


def config(archive: StoredZip) -> dict[str, Any]:
    """The model's description in a .keras archive."""
    try:
        if archive.size(CONFIG) > _MOST_CONFIG:
            raise ValueError(f"{archive.size(CONFIG):,} bytes")
        found = json.loads(archive.read(CONFIG))
        if not isinstance(found, dict):
            raise ValueError("no object")
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{archive.where}: its {CONFIG} is damaged ({error}); save the model "
                           "again") from None
    return found


@contextmanager
def reading(data: bytes, where: str, named: bool) -> Iterator[list[Module]]:
    """The groups with weights of a .weights.h5 file. Arrays can be read while it is open.

    `named` asks for the names that layers had, besides paths. They are texts of any length, where
    the HDF5 library may lose itself in a damaged file; so they are read only where they are needed.
    """
    h5py = _h5py()
    try:
        _check_heaps(data)
        with h5py.File(io.BytesIO(data), "r") as file:
            if "layer_names" in file.attrs or "model_weights" in file:
                raise Unsupported(f"{where} was written by Keras 2; load it there or in Keras 3, "
                                  "and write it with model.save_weights('x.weights.h5')")
            yield list(_modules(h5py, file, where, named))
    except _FAULTS as error:
        if isinstance(error, WeightsError | Unsupported | ConfigError):
            raise
        raise WeightsError(f"{where} is damaged or truncated ({error}); copy or write it "
                           "again") from None


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise Unsupported("files of Keras are HDF5, which h5py reads and writes: pip install "
                          "ztorch[hdf5]") from None
    return h5py


def _check_heaps(data: bytes) -> None:
    """An error unless the heaps, where texts lie, are objects side by side up to their end: in
    one that is not, the HDF5 library may walk for ever."""
    if data[:8] == SIGNATURE and data[8:9]:
        lengths = data[14] if data[8] < 2 else data[10]
        if lengths != 8:
            raise ValueError(f"its sizes have {lengths} bytes, not 8")
    for found in re.finditer(rb"GCOL\x01\0\0\0", data):
        at = found.end() + 8
        end = found.start() + int.from_bytes(data[found.end():at], "little")
        if end > len(data):
            raise ValueError("a heap reaches over its end")
        while at + 16 <= end:
            number, size = data[at:at + 2], int.from_bytes(data[at + 8:at + 16], "little")
            at += size if number == b"\0\0" else 16 + -(-size // 8) * 8
            if at > end or (number == b"\0\0" and at < end):  # what is free lies last
                raise ValueError("the objects of a heap do not add up to it")


def _modules(h5py: Any, file: Any, where: str, named: bool) -> Iterator[Module]:
    """Every group with weights below: by its path, and by the names that the layers had."""
    stack: list[tuple[Any, tuple[str, ...], tuple[str, ...]]] = [(file, (), ())]
    count = 0
    while stack:
        group, path, names = stack.pop()
        count += 1
        if count > _MOST_GROUPS or len(path) > _MOST_DEPTH:
            raise ValueError("it has more groups than any model")
        below = _members(h5py, group, where)
        own = _members(h5py, below["vars"], where) if "vars" in below else {}
        if own and path:
            tensors = {key: _stored(h5py, own[key], f"{'/'.join(path)}/vars/{key}", where)
                       for key in sorted(own, key=lambda k: (len(k), k))}
            yield Module(("/".join(path), *(["/".join(names)] if named else [])), tensors)
        for key, inner in reversed(below.items()):
            if isinstance(inner, h5py.Group) and key != "vars" and key not in _NO_LAYERS:
                name = _named(h5py, inner, where) if named else ()
                stack.append((inner, (*path, _plain(key)), (*names, *name)))


def _members(h5py: Any, group: Any, where: str) -> dict[str, Any]:
    """What lies in a group. Links, which could lead into other files, are not followed."""
    if not isinstance(group, h5py.Group):
        return {}
    for key in group:
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise WeightsError(f"{where} links {key[:80]!r} to another place, which files of Keras "
                               "never do; do not use it")
    return dict(group.items())


def _plain(key: str) -> str:
    """Attributes that later versions of Keras named without an underscore; and 2.13's layers."""
    return "layers" if key == "_layer_checkpoint_dependencies" else key.removeprefix("_")


def _named(h5py: Any, group: Any, where: str) -> tuple[str, ...]:
    """The name that a layer had. The cell of a recurrent layer has one too, which ours lack."""
    own = _members(h5py, group, where).get("vars")
    name = own.attrs.get("name") if own is not None else None
    return (name,) if isinstance(name, str) and not name.endswith("_cell") else ()


def _stored(h5py: Any, dataset: Any, name: str, where: str) -> Stored:
    if not isinstance(dataset, h5py.Dataset) or dataset.external or dataset.is_virtual:
        raise WeightsError(f"{where}: {name} does not hold its numbers itself; do not use this "
                           "file")
    if dataset.chunks is not None:  # what its pieces unfold to, nobody knows beforehand
        raise WeightsError(f"{where}: {name} lies in pieces, maybe compressed, as files of Keras "
                           "never do; rewrite it: h5repack -l CONTI -f NONE")
    held, whole = dataset.id.get_storage_size(), dataset.size * dataset.dtype.itemsize
    if held != whole:
        raise ValueError(f"{name} has {held} bytes, not {whole}")

    def load() -> np.ndarray:
        d = dataset.dtype
        if d.itemsize == 2 and d.kind in "uV" and dataset.attrs.get("dtype") == "bfloat16":
            return from_storage(bf16, dataset[()].view(np.uint16))
        if d.kind not in "fiu":
            raise WeightsError(f"{where}: {name} holds {d}, no numbers")
        return dataset[()]

    return Stored(tuple(dataset.shape), load)


def write(parts: Sequence[Part], values: Mapping[Weight, np.ndarray], model: str) -> bytes:
    """The bytes of a .weights.h5 file, as Keras would write it for the same layers."""
    file = io.BytesIO()
    with _h5py().File(file, "w") as root:
        root.create_group("vars").attrs["name"] = model
        for part in parts:
            path, name = part.names
            own = root.create_group(path).create_group("vars")
            own.attrs["name"] = name.rpartition("/")[2]
            for key, array in part.write(values).items():
                own[key] = array
    return file.getvalue()
