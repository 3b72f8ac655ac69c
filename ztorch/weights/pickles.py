"""Reads the pickles in PyTorch's files without running code.

A pickle is a program that can call any function it names. Here its opcodes are interpreted one by
one, and it may only name the types of a state dict; any other name is an error.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch import dtypes
from ztorch.dtypes import DType
from ztorch.errors import WeightsError
from ztorch.files.parsing import parsing

MOST_BYTES = 16 << 20  # of a pickle, enough for hundreds of thousands of tensors
_MOST_AXES = 32  # of a tensor
_STORAGES = {d.torch: d for d in dtypes.ALL if d.torch}
_DTYPES = {d.long: d for d in dtypes.ALL}
_FIX = ("save only the state dict, torch.save(model.state_dict(), path), or "
        "safetensors.torch.save_file(model.state_dict(), path)")


@dataclass(frozen=True, eq=False)
class PickledTensor:
    """A tensor as a view of its storage; no bytes are copied."""

    dtype: DType
    array: np.ndarray


@dataclass(frozen=True, eq=False)
class _Name:
    """A Python class or function that a pickle names."""

    path: str


@dataclass(frozen=True, eq=False)
class _Storage:
    """The bytes of one or more tensors."""

    dtype: DType | None  # None: each tensor has its own
    data: bytes


def load(pickle: bytes, storage: Callable[[str], bytes], source: str) -> Any:
    """The object in a pickle, made of dicts, lists, tuples, numbers, strings and tensors.

    Args:
        pickle: The bytes of the pickle.
        storage: Returns the bytes of a storage by its key.
        source: The file, for error messages.
    """
    if len(pickle) > MOST_BYTES:
        raise WeightsError(f"{source} has a pickle of {len(pickle):,} bytes; at most "
                           f"{MOST_BYTES:,} are read: {_FIX}")
    machine = _PickleReader(storage, source)
    with parsing(source, WeightsError, "is damaged or truncated", "copy or write it again"):
        for opcode, argument, _ in pickletools.genops(pickle):
            step = _STEPS.get(opcode.name)
            if step is None:
                raise _refused(source, f"uses the pickle opcode {opcode.name}")
            step(machine, argument)
        return machine.result()


def _refused(source: str, reason: str) -> WeightsError:
    return WeightsError(f"{source} {reason}, which no state dict needs; none of its code was run. "
                        f"If you trust its source, {_FIX}")


class _PickleReader:
    """The state of a pickle that is being read: a stack, marks in it, and a memo."""

    def __init__(self, storage: Callable[[str], bytes], source: str):
        self.storage, self.source = storage, source
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memory: dict[int, Any] = {}
        self.storages: dict[str, bytes] = {}

    def push(self, x: Any) -> None:
        self.stack.append(x)

    def pop(self) -> Any:
        if self.marks and len(self.stack) == self.marks[-1]:
            raise ValueError("a pickle opcode lacks its operand")
        return self.stack.pop()

    def pop_marked(self) -> list[Any]:
        """The items above the last mark."""
        at = self.marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def result(self) -> Any:
        if len(self.stack) != 1 or self.marks:
            raise ValueError("its pickle does not leave one object")
        return self.stack[0]

    # -- names and calls ---------------------------------------------------------------------------

    def name(self, module: str, name: str) -> None:
        path = f"{module}.{name}"
        if path not in _KNOWN:
            raise _refused(self.source, f"refers to {path[:120]}")
        self.push(_Name(path))

    def put(self, target: Any, keys: list[Any], values: list[Any]) -> None:
        if not isinstance(target, dict):
            raise ValueError("an item of something that is not a dict")
        for key, value in zip(keys, values, strict=True):
            if not isinstance(key, str | int | float | None):  # hashing a deep tuple is not safe
                raise ValueError(f"a key that is a {type(key).__name__}")
            target[key] = value

    def extend(self, target: Any, items: list[Any]) -> None:
        if not isinstance(target, list):
            raise ValueError("an item of something that is not a list")
        target.extend(items)

    def call(self, function: Any, arguments: Any) -> Any:
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise ValueError("a call of something that is not a function")
        make = _CALLS.get(function.path)
        if make is None:
            raise _refused(self.source, f"calls {function.path}")
        return make(self, *arguments)

    def rebuild(self, storage: Any, offset: Any, size: Any, stride: Any,
                *rest: Any) -> PickledTensor:
        """torch._utils._rebuild_tensor_v2; its other arguments are about gradients."""
        if not isinstance(storage, _Storage) or storage.dtype is None:
            raise ValueError("a tensor without a storage")
        return _view(storage.data, storage.dtype, offset, size, stride)

    def rebuild_untyped(self, storage: Any, offset: Any, size: Any, stride: Any, grad: Any,
                        hooks: Any, dtype: Any, *rest: Any) -> PickledTensor:
        """torch._utils._rebuild_tensor_v3: the tensor has the dtype, not its storage."""
        d = _DTYPES.get(dtype.path.removeprefix("torch.")) if isinstance(dtype, _Name) else None
        if not isinstance(storage, _Storage) or d is None:
            raise ValueError("a tensor without a storage or a dtype")
        return _view(storage.data, d, offset, size, stride)

    def parameter(self, tensor: Any, *rest: Any) -> PickledTensor:
        if not isinstance(tensor, PickledTensor):
            raise ValueError("a parameter that is not a tensor")
        return tensor

    def ordered(self, *items: Any) -> dict[Any, Any]:
        if items:
            raise ValueError("an OrderedDict with arguments")
        return {}

    def size(self, numbers: Any) -> tuple[int, ...]:
        return _integers("torch.Size", numbers)

    def persistent(self, persistent_id: Any) -> _Storage:
        """The storage for an id ('storage', type, key, device, number of elements)."""
        kind, of, key, _, count = persistent_id
        if kind != "storage" or not isinstance(of, _Name) or not isinstance(key, str):
            raise ValueError(f"a persistent id {kind!r} that is not storage")
        short = of.path.rpartition(".")[2].removesuffix("Storage")
        d = _STORAGES.get(short)
        if key not in self.storages:
            self.storages[key] = self.storage(key)
        data = self.storages[key]
        if type(count) is not int or len(data) != count * (d.bytes if d else 1):
            raise ValueError(f"storage {key[:40]!r} has {len(data)} bytes, not {count} elements of "
                             f"{short}")
        return _Storage(d, data)


def _integers(role: str, numbers: Any) -> tuple[int, ...]:
    if not isinstance(numbers, tuple) or len(numbers) > _MOST_AXES or any(
            type(n) is not int or n < 0 for n in numbers):
        raise ValueError(f"{role} that is not a tuple of integers")
    return numbers


def _view(data: bytes, d: DType, offset: Any, size: Any, stride: Any) -> PickledTensor:
    """A tensor as a view of its storage, after checking that all elements are inside."""
    _integers("an offset", (offset,))
    size, stride = _integers("a size", size), _integers("a stride", stride)
    if len(size) != len(stride):
        raise ValueError("a tensor with more axes than strides")
    count, capacity = math.prod(size), len(data) // d.bytes
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if count and (count > capacity or last >= capacity):
        raise ValueError(f"a tensor of shape {size} at {offset} that ends beyond its storage of "
                         f"{capacity} elements")
    if not count:
        return PickledTensor(d, np.empty(size, d.numpy))
    steps = tuple(s * d.bytes if n > 1 else d.bytes for n, s in zip(size, stride, strict=True))
    array = np.ndarray(size, d.numpy.newbyteorder("<"), data, offset * d.bytes, steps)
    return PickledTensor(d, array)


_CALLS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _PickleReader.ordered,
    "torch.Size": _PickleReader.size,
    "torch._utils._rebuild_tensor_v2": _PickleReader.rebuild,
    "torch._utils._rebuild_tensor_v3": _PickleReader.rebuild_untyped,
    "torch._utils._rebuild_parameter": _PickleReader.parameter,
}
_KNOWN = {*_CALLS, "torch.storage.UntypedStorage", *(f"torch.{n}Storage" for n in _STORAGES),
          *(f"torch.{n}" for n in _DTYPES)}


def _tuple_of(count: int) -> Callable[[_PickleReader, Any], None]:
    def step(m: _PickleReader, _: Any) -> None:
        items = [m.pop() for _ in range(count)]
        m.push(tuple(reversed(items)))
    return step


def _set_items(m: _PickleReader, _: Any) -> None:
    items = m.pop_marked()
    m.put(m.stack[-1], items[::2], items[1::2])


def _set_item(m: _PickleReader, _: Any) -> None:
    value, key = m.pop(), m.pop()
    m.put(m.stack[-1], [key], [value])


def _append(m: _PickleReader, _: Any) -> None:
    item = m.pop()
    m.extend(m.stack[-1], [item])


def _appends(m: _PickleReader, _: Any) -> None:
    items = m.pop_marked()
    m.extend(m.stack[-1], items)


def _stack_global(m: _PickleReader, _: Any) -> None:
    name, module = m.pop(), m.pop()
    m.name(str(module), str(name))


def _reduce(m: _PickleReader, _: Any) -> None:
    arguments, function = m.pop(), m.pop()
    m.push(m.call(function, arguments))


def _build(m: _PickleReader, _: Any) -> None:
    """Ignores attributes of an object: those of a state dict are the versions of its modules."""
    m.pop()
    if not isinstance(m.stack[-1], dict):
        raise ValueError("attributes of something that is not a dict")


def _remember(m: _PickleReader, key: Any) -> None:
    m.memory[len(m.memory) if key is None else key] = m.stack[-1]


_push = _PickleReader.push
_STEPS: dict[str, Callable[[_PickleReader, Any], None]] = {
    "PROTO": lambda m, _: None, "FRAME": lambda m, _: None, "STOP": lambda m, _: None,
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "NONE": lambda m, _: m.push(None), "NEWTRUE": lambda m, _: m.push(True),
    "NEWFALSE": lambda m, _: m.push(False),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE",
                     "SHORT_BINUNICODE", "BINUNICODE8"), _push),
    "EMPTY_DICT": lambda m, _: m.push({}), "EMPTY_LIST": lambda m, _: m.push([]),
    "EMPTY_TUPLE": lambda m, _: m.push(()),
    "TUPLE1": _tuple_of(1), "TUPLE2": _tuple_of(2), "TUPLE3": _tuple_of(3),
    "TUPLE": lambda m, _: m.push(tuple(m.pop_marked())),
    "SETITEM": _set_item, "SETITEMS": _set_items, "APPEND": _append, "APPENDS": _appends,
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), _remember),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda m, key: m.push(m.memory[key])),
    "GLOBAL": lambda m, names: m.name(*names.split(" ", 1)),
    "STACK_GLOBAL": _stack_global,
    "BINPERSID": lambda m, _: m.push(m.persistent(m.pop())),
    "REDUCE": _reduce, "BUILD": _build,
}
