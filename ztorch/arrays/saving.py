"""Files of tensors for custom training loops: `zt.save_tensors` and `zt.load_tensors`.

The format is safetensors, which other libraries read. A tensor is named by its keys, such as
`params/dense/kernel`. The metadata describes the tree and holds its numbers and strings.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from ztorch.arguments import checked, file_name
from ztorch.arrays.complex_tensor import ComplexTensor
from ztorch.arrays.creation import tensor
from ztorch.arrays.elements import node_from, stored_array
from ztorch.arrays.node import TensorNode
from ztorch.arrays.realize import realize
from ztorch.arrays.tensor import Tensor
from ztorch.dtypes import from_storage
from ztorch.errors import DataError, WeightsError
from ztorch.files import safetensors
from ztorch.files.atomic import need_name
from ztorch.files.parsing import parsing
from ztorch.optimizers.optimizer import is_optimizer

_TREE = "ztorch tree"  # the key of the metadata that describes the tree
_PLAIN = (bool, int, float, str, type(None))  # kept in the tree itself, as JSON


@checked
def save_tensors(tree: Any, path: str | os.PathLike[str]) -> None:
    """Writes a tree of tensors, such as the state of a training loop, to a safetensors file. The
    file is written completely or not at all, even if the process is killed.

    Args:
        tree: Tensors, or dicts, lists and tuples of them. NumPy arrays become tensors. Numbers,
            strings, booleans and `None` are kept as they are. Keys are strings or integers.
        path: The file, such as `"run.safetensors"`.

    Raises:
        DataError: The tree holds an object of another type; the message names its place.
        FileError: The file cannot be written.

    Examples:
        >>> import os, tempfile, ztorch as zt
        >>> path = os.path.join(tempfile.mkdtemp(), "run.safetensors")
        >>> params = {"w": zt.tensor([1.0, 2.0])}
        >>> adam = zt.optimizers.Adam()
        >>> zt.save_tensors({"params": params, "adam": adam.get_state(), "epoch": 3}, path)
        >>> zt.load_tensors(path)["params"]
        {'w': tensor([1., 2.], dtype=float32, device='cpu')}
    """
    file_name("save_tensors(path=...)", path)
    need_name(path, "tensors", ".safetensors", "name it .safetensors")
    nodes: dict[str, TensorNode] = {}
    described = _described(tree, "", nodes)
    realize(tuple(nodes.values()))
    safetensors.write(path, {n: (x.spec.dtype, stored_array(x)) for n, x in nodes.items()},
                      {_TREE: json.dumps(described)})


@checked
def load_tensors(path: str | os.PathLike[str], device: str | None = None) -> Any:
    """Reads a tree that `save_tensors` wrote. A safetensors file of another library is read as a
    dict of tensors by name.

    Args:
        path: The file.
        device: The device of the tensors; `None` means the default one. Default: `None`.

    Raises:
        WeightsError: The file is damaged or has another format.

    Examples:
        >>> import os, tempfile, ztorch as zt
        >>> path = os.path.join(tempfile.mkdtemp(), "tree.safetensors")
        >>> zt.save_tensors([zt.arange(3), "step", 7], path)
        >>> zt.load_tensors(path)
        [tensor([0, 1, 2], dtype=int64, device='cpu'), 'step', 7]
    """
    arrays, metadata = safetensors.read(file_name("load_tensors(path=...)", path))
    tensors = {n: tensor(from_storage(d, a), d, device) for n, (d, a) in arrays.items()}
    if _TREE not in metadata:
        return tensors
    with parsing(os.fspath(path), WeightsError, "describes no tree of its tensors",
                 "it is damaged: write or copy it again"):
        return _built(json.loads(metadata[_TREE]), tensors)


def _described(part: Any, name: str, nodes: dict[str, TensorNode]) -> Any:
    """A part of a tree as JSON: `[kind, content]`. Its tensors are added to `nodes`."""
    if isinstance(part, dict):
        for key in part:
            if type(key) not in (str, int):
                raise DataError(f"{_place(name)} has the key {key!r}; use strings or integers")
        return ["dict", [[key, _described(x, _inner(name, key), nodes)]
                         for key, x in part.items()]]
    if isinstance(part, (list, tuple)):
        if hasattr(part, "_fields"):
            raise DataError(f"{_place(name)} is a {type(part).__name__}, which a file cannot "
                            "name; use ._asdict()")
        return [type(part).__name__, [_described(x, _inner(name, k), nodes)
                                      for k, x in enumerate(part)]]
    if isinstance(part, ComplexTensor):
        return ["complex", [_described(x, _inner(name, k), nodes)
                            for k, x in (("real", part.real), ("imag", part.imag))]]
    if type(part) in _PLAIN:
        return ["value", part]
    if is_optimizer(part):
        raise DataError(f"{_place(name)} is an optimizer; save its get_state()")
    if not isinstance(part, (Tensor, np.ndarray, np.generic)):
        raise DataError(f"{_place(name)} is a {type(part).__name__}; a file holds tensors, arrays, "
                        "numbers and strings, in dicts, lists and tuples")
    own = name or "tensor"
    while own in nodes or own == "__metadata__":  # {"a/b": x, "a": {"b": y}}
        own += "_"
    nodes[own] = node_from(part, None, None, copy=False)
    return ["tensor", own]


def _inner(name: str, key: Any) -> str:
    return f"{name}/{key}" if name else str(key)


def _place(name: str) -> str:
    return f"tree at {name!r}" if name else "the tree"


def _built(described: Any, tensors: dict[str, Any]) -> Any:
    """A part of a tree from its JSON."""
    kind, content = described
    if kind == "dict":
        if any(type(key) not in (str, int) for key, _ in content):
            raise ValueError("a key is not a string or an integer")
        return {key: _built(x, tensors) for key, x in content}
    if kind in ("list", "tuple"):
        parts = [_built(x, tensors) for x in content]
        return parts if kind == "list" else tuple(parts)
    if kind == "complex":
        real, imag = (_built(x, tensors) for x in content)
        if not (isinstance(real, Tensor) and isinstance(imag, Tensor)
                and (real.shape, real.dtype) == (imag.shape, imag.dtype)):
            raise ValueError("the parts of a complex tensor differ")
        return ComplexTensor(real, imag)
    if kind == "tensor":
        return tensors[content]
    if kind == "value" and type(content) in _PLAIN:
        return content
    raise ValueError(f"{kind!r} is no part of a tree")
