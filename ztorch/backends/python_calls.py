"""Compiled code as built-in functions of CPython, because a call by `ctypes` takes longer than a
small kernel. A short call holds the interpreter's lock, so no two of them run at the same time."""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.abi import (
    BUFFER_ALIGN,
    BYTES_HEAD,
    PYTHON_CALL,
    PYTHON_RECORD,
    PYTHON_RECORDING,
    RECORDING_RECORD,
    align_up,
    alignment,
)
from ztorch.backends.library import load_library

_FAST_CALL, _KEYWORDS = 0x80, 0x02  # METH_FASTCALL and METH_KEYWORDS


class _MethodDef(ctypes.Structure):
    """The structure PyMethodDef of Python's stable ABI."""

    _fields_ = (("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p))


def contents_address(block: bytes) -> int:
    """The address of the aligned contents of a bytes object made by native code."""
    return align_up(id(block) + BYTES_HEAD, alignment(len(block)))


def padding_bytes(block: bytes) -> int:
    """The unused bytes of such an object before its aligned contents."""
    return contents_address(block) - id(block) - BYTES_HEAD


def bytes_object_size(nbytes: int) -> int:
    """The length of a bytes object with room for `nbytes` aligned bytes. It is never 0, because
    Python shares empty bytes objects.

    >>> bytes_object_size(0), bytes_object_size(1000)
    (128, 1064)
    """
    return max(nbytes, BUFFER_ALIGN) + alignment(nbytes + BUFFER_ALIGN)


def python_function(library: bytes, numbers: Mapping[str, int], objects: Mapping[str, Any],
                    shared: bool, table: Sequence[int], owner: Any) -> Callable[..., Any]:
    """A function that runs a program on the memory of its arguments.

    It returns NotImplemented if the program was not compiled for such arguments. `matching.py` has
    the steps that check arguments and build the result.

    Args:
        library: The native functions of `compile/python_calls.py`.
        numbers: The fields of its record that are numbers and addresses.
        objects: The fields that are Python objects.
        shared: Whether it releases the interpreter's lock during a run.
        table: The words after the record: outputs, steps and builds, three words each.
        owner: An object that keeps all of these alive. The function refers to it.
    """
    api = ctypes.pythonapi
    lock = ("PyEval_SaveThread", "PyEval_RestoreThread")
    addresses = {field: address_of(api[name]) for field, name in _FUNCTIONS.items()}
    addresses |= {field: address_of(api[name]) if shared else 0
                  for field, name in zip(("unlock", "lock"), lock, strict=True)}
    common = {"bytes_type": bytes, "float_type": float, "none": None, "yes": True,
              "other": NotImplemented, "empty": (), "zero": 0}
    fields = {**addresses, **numbers, **{k: id(x) for k, x in {**common, **objects}.items()}}
    record = struct.pack(f"{len(PYTHON_RECORD) + len(table)}q",
                         *[fields[name] for name in PYTHON_RECORD], *table)
    return _function(_method(library, PYTHON_CALL, _FAST_CALL), record, owner)


def recording_function(library: bytes, numbers: Mapping[str, int], objects: Mapping[str, Any],
                       owner: Any) -> Callable[..., Any]:
    """A function that records a call of an op in the graph.

    It returns NotImplemented unless a call with arguments of the same types was recorded before.

    Args:
        library: The native functions of `compile/python_calls.py`.
        numbers: The fields of its record that are numbers.
        objects: The fields that are Python objects.
        owner: An object that keeps all of these alive. The function refers to it.
    """
    api = ctypes.pythonapi
    names = {**{k: v for k, v in _FUNCTIONS.items() if k in RECORDING_RECORD},
             "as_long": "PyLong_AsLong", "from_long": "PyLong_FromLong"}
    common = {"list_type": list, "tuple_type": tuple, "none": None, "yes": True,
              "other": NotImplemented, "zero": 0}
    fields = {**{field: address_of(api[name]) for field, name in names.items()}, **numbers,
              **{k: id(x) for k, x in {**common, **objects}.items()}}
    record = struct.pack(f"{len(RECORDING_RECORD)}q", *[fields[name] for name in RECORDING_RECORD])
    return _function(_method(library, PYTHON_RECORDING, _FAST_CALL | _KEYWORDS), record, owner)


def _function(method: _MethodDef, record: bytes, owner: Any) -> Callable[..., Any]:
    """A built-in function of CPython; native code gets the record as its first argument."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object,
                            ctypes.py_object)(("PyCFunction_NewEx", ctypes.pythonapi))
    # Python takes the last argument for the function's module, and keeps it alive. It points to
    # the method, of which threads may make two at once: the cache keeps the last one alone.
    function: Callable[..., Any] = new(ctypes.addressof(method), record, (owner, method))
    return function


# Functions of Python's C API that native code calls, by the names of their record fields.
_FUNCTIONS = {
    "as_address": "PyLong_AsVoidPtr", "new_bytes": "PyBytes_FromStringAndSize",
    "keep": "Py_IncRef", "give_up": "Py_DecRef", "dict_get": "PyDict_GetItem",
    "dict_size": "PyDict_Size", "dict_set": "PyDict_SetItem", "new_object": "PyType_GenericAlloc",
    "new_tuple": "PyTuple_New", "new_list": "PyList_New", "new_dict": "PyDict_New",
    "new_weak": "PyWeakref_NewRef",
    "equal": "PyObject_RichCompareBool"}


@functools.cache
def slot_offsets(kind: type[Any]) -> dict[str, int]:
    """The offset of each slot in objects of a class with `__slots__`, in bytes.

    >>> class Pair:
    ...     __slots__ = ("a", "b")
    >>> sorted(slot_offsets(Pair).values()) == [object.__basicsize__, object.__basicsize__ + 8]
    True
    """
    names = [name for c in kind.__mro__ for name in getattr(c, "__slots__", ())
             if name != "__weakref__"]
    sample, places = object.__new__(kind), {}
    for name in names:
        value = object()
        object.__setattr__(sample, name, value)
        words = ctypes.string_at(id(sample), kind.__basicsize__)
        places[name] = 8 * struct.unpack(f"{len(words) // 8}q", words).index(id(value))
        object.__setattr__(sample, name, None)
    return places


@functools.cache
def has_python_functions() -> bool:
    """Whether this Python is CPython with an interpreter lock, where such functions work."""
    locked: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    block = bytes(64)
    return sys.implementation.name == "cpython" and locked() and (
        np.frombuffer(block, np.uint8).__array_interface__["data"][0] == id(block) + BYTES_HEAD)


def native_address(library: bytes, symbol: str) -> int:
    """The address of a native function. Its library stays loaded."""
    return address_of(_loaded(library)[symbol])


@functools.cache
def _loaded(library: bytes) -> ctypes.CDLL:
    return load_library(library, "python_call")


def address_of(function: Any) -> int:
    """The address of a `ctypes` function."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@functools.cache
def _method(library: bytes, symbol: str, flags: int) -> _MethodDef:
    return _MethodDef(b"run", native_address(library, symbol), flags, None)
