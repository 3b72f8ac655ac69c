"""Reads the files of torch.export.save: zips of JSON and raw arrays. Unpickles nothing."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.dtypes import ALL, DType, f32, f64
from ztorch.errors import ArtifactError, Unsupported, WeightsError
from ztorch.files.zips import StoredZip
from ztorch.interchange.torch_export.blocks import unfolded

SCHEMA = 8  # major version of the JSON

DTYPES: dict[int, DType] = {d.torch_export: d for d in ALL}  # by PyTorch's numbers
# Complex dtypes: pairs of floats along a last axis that dims do not count.
COMPLEX: dict[int, DType] = {10: f32, 11: f64}

_MOST_REPEATED = 1 << 28  # bytes of a tensor that is larger than its storage, by strides of 0
_FIX = "save the program again with torch.export.save of PyTorch 2.9 or later"


@dataclass(frozen=True)
class TensorType:
    """The dtype and shape of a tensor."""

    dtype: DType
    dims: tuple[int | str, ...]  # numbers, or symbolic expressions
    strides: tuple[int | str, ...] = ()
    is_complex: bool = False

    @property
    def in_order(self) -> bool:
        """Whether elements are in the order of their axes, without gaps."""
        step: int | None = 1  # None: not a known number
        for n, stride in zip(self.dims[::-1], self.strides[::-1], strict=False):
            if n != 1 and isinstance(stride, int) and stride != step:
                return False
            step = step * n if isinstance(n, int) and step is not None else None
        return True


@dataclass(frozen=True)
class CallSpec:
    """A call of an operator, as the file has it."""

    target: str  # such as torch.ops.aten.relu.default
    name: str
    inputs: dict[str, Mapping[str, Any]]  # arguments by name: a kind and a value
    outputs: list[Mapping[str, Any]]


@dataclass(frozen=True)
class ExportedProgram:
    """The program in a file."""

    path: str
    inputs: dict[str, TensorType]  # that callers pass, by name
    outputs: list[str]  # names of tensors
    calls: list[CallSpec]
    types: dict[str, TensorType]  # of all tensors
    arrays: dict[str, tuple[str, np.ndarray, DType]]  # by name: module name, numbers, dtype
    frozen: frozenset[str]  # names in the module of what does not train: buffers, for example


def read(path: str | os.PathLike[str]) -> ExportedProgram:
    """Reads a file.

    Raises:
        ArtifactError: torch.export.save did not write it, or it is damaged.
        Unsupported: It holds pickled objects, or has an unknown version.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ArtifactError(f"{name} cannot be read: {error.strerror}") from None
    try:
        archive = StoredZip(data, name)
    except WeightsError as error:
        raise ArtifactError(str(error)) from None
    with damage(name):
        return _Reader(name, archive).program()


@contextmanager
def damage(path: str) -> Iterator[None]:
    """Turns exceptions about damaged contents into an ArtifactError."""
    try:
        yield
    except WeightsError as error:
        raise ArtifactError(str(error)) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
            RecursionError) as error:
        raise ArtifactError(f"{path} is damaged, or is not a program of torch.export "
                            f"({type(error).__name__}: {str(error)[:120]}); {_FIX}") from None


class _Reader:
    """Reads the members of one file."""

    def __init__(self, path: str, archive: StoredZip):
        self.path, self.archive = path, archive
        formats = [n for n in archive.names if n.rpartition("/")[2] == "archive_format"]
        if not formats:
            older = any(n.endswith("serialized_exported_program.json") for n in archive.names)
            if older:
                raise Unsupported(f"{path} was written by an older PyTorch, which pickles weights; "
                                  f"{_FIX}")
            raise ArtifactError(f"{path} is not a program of torch.export; {_FIX}")
        self.root = formats[0].removesuffix("archive_format")
        order = self.archive.read(f"{self.root}byteorder").decode("ascii", "replace")
        if order != "little":
            raise Unsupported(f"{path} has {order!r} byte order; ztorch reads little endian")
        self._configs: dict[str, Any] = {}

    def program(self) -> ExportedProgram:
        """The program, which is called model in the file."""
        document = self._json("models/model.json")
        version = document["schema_version"]["major"]
        if version != SCHEMA:
            raise Unsupported(f"{self.path} has version {version} of the schema of torch.export; "
                              f"ztorch reads {SCHEMA}: {_FIX}")
        module = document["graph_module"]
        graph, signature = module["graph"], module["signature"]
        nodes, metas = unfolded(graph)
        types = {name: _type(self.path, meta) for name, meta in metas.items()}
        inputs: dict[str, TensorType] = {}
        arrays: dict[str, tuple[str, np.ndarray, DType]] = {}
        frozen = set()
        for spec in signature["input_specs"]:
            [(kind, fields)] = spec.items()
            if kind == "user_input":
                name = self._input(fields)
                inputs[name] = types[name]
            elif kind in ("parameter", "buffer", "tensor_constant"):
                label = fields[f"{kind}_name"]
                folder = ("constants" if kind == "tensor_constant" or not fields.get(
                    "persistent", True) else "weights")
                arrays[fields["arg"]["name"]] = (label, *self._array(folder, label))
                if kind != "parameter" or not self._trains(label):
                    frozen.add(label)
            elif kind != "token":  # a token only orders calls with side effects
                raise Unsupported(f"{self.path}: an input is a {kind}; export a module that takes "
                                  "only tensors")
        calls = [CallSpec(str(n["target"]), str(n.get("name") or n["target"]),
                          {a["name"]: a["arg"] for a in n["inputs"]}, n["outputs"]) for n in nodes]
        return ExportedProgram(self.path, inputs, self._outputs(signature), calls, types, arrays,
                               frozenset(frozen))

    def _input(self, fields: Mapping[str, Any]) -> str:
        """The name of an input, which must be a tensor."""
        [(form, value)] = fields["arg"].items()
        if form != "as_tensor":
            raise Unsupported(f"{self.path}: an input is {form.removeprefix('as_')}, not a tensor; "
                              "export a module that takes only tensors")
        return str(value["name"])

    def _outputs(self, signature: Mapping[str, Any]) -> list[str]:
        names = []
        for spec in signature["output_specs"]:
            [(kind, fields)] = spec.items()
            if kind == "token":
                continue
            if kind == "buffer_mutation":
                raise Unsupported(f"{self.path} writes into the buffer {fields['buffer_name']!r}; "
                                  "export module.eval()")
            [(form, value)] = fields["arg"].items()
            if kind != "user_output" or form not in ("as_tensor", "as_none"):
                raise Unsupported(f"{self.path}: an output is {kind} of {form}; export a module "
                                  "that returns tensors")
            if form == "as_tensor":
                names.append(value["name"])
        return names

    def _json(self, member: str) -> Any:
        return json.loads(self.archive.read(self.root + member))

    def _trains(self, name: str) -> bool:
        """Whether the module wants gradients of a parameter that was read."""
        return bool(self._configs["weights"][name]["tensor_meta"].get("requires_grad", True))

    def _array(self, folder: str, name: str) -> tuple[np.ndarray, DType]:
        """The numbers of a weight or constant, as the file stores them."""
        if folder not in self._configs:
            document = self._json(f"data/{folder}/model_{folder}_config.json")
            self._configs[folder] = document["config"]
        entry = self._configs[folder][name]
        member = f"{self.root}data/{folder}/{entry['path_name']}"
        if entry["use_pickle"]:
            raise Unsupported(f"{self.path}: {name!r} is pickled, since it is not a dense tensor; "
                              "ztorch unpickles nothing")
        kind, meta = _type(self.path, entry["tensor_meta"]), entry["tensor_meta"]
        shape = tuple(int(n) for n in kind.dims)
        strides = tuple(n["as_int"] for n in meta["strides"])
        offset = meta["storage_offset"]["as_int"]
        size = kind.dtype.bytes * (2 if kind.is_complex else 1)
        data = self.archive.read(member)
        last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        count = math.prod(shape)
        if min((*shape, *strides, offset), default=0) < 0 or (
                count and (last + 1) * size > len(data)) or (
                count * size > max(len(data), _MOST_REPEATED)):
            raise ValueError(f"{name!r} is larger than its {len(data)} bytes")
        number = np.result_type(kind.dtype.numpy, np.complex64) if kind.is_complex else (
            kind.dtype.numpy)
        stored = np.frombuffer(data, number, len(data) // size)
        array = np.lib.stride_tricks.as_strided(
            stored[offset:], shape, tuple(size * s for s in strides), writeable=False)
        array = np.ascontiguousarray(array).reshape(shape)
        if kind.is_complex:
            array = array.reshape(-1).view(kind.dtype.numpy).reshape(*shape, 2)
        return array, kind.dtype


def _type(path: str, meta: Mapping[str, Any]) -> TensorType:
    number = meta["dtype"]
    if number not in DTYPES and number not in COMPLEX:
        raise Unsupported(f"{path}: a tensor has PyTorch's dtype number {meta['dtype']}, which "
                          "ztorch does not compute with")
    return TensorType(DTYPES.get(number) or COMPLEX[number], tuple(map(_size, meta["sizes"])),
                      tuple(map(_size, meta.get("strides", ()))), number in COMPLEX)


def _size(size: Mapping[str, Any]) -> int | str:
    [(form, value)] = size.items()
    return int(value) if form == "as_int" else str(value["expr_str"])
