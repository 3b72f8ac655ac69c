"""Compiled code as functions that CPython calls without `ctypes`, which takes longer than a small
kernel. A short call keeps the interpreter's lock, so no two of them run at the same time."""

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

_FAST_CALL, _KEYWORDS = 0x80, 0x02  # METH_FASTCALL, METH_KEYWORDS


class _MethodDef(ctypes.Structure):
    """PyMethodDef, of Python's stable interface."""

    _fields_ = (("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p))


def contents(block: bytes) -> int:
    """The first aligned address inside a bytes object of ours."""
    return align_up(id(block) + BYTES_HEAD, alignment(len(block)))


def skipped(block: bytes) -> int:
    """The bytes before that address."""
    return contents(block) - id(block) - BYTES_HEAD


def room_for(nbytes: int) -> int:
    """The length of a bytes object that holds so many bytes at a place that is aligned. It is none
    that Python shares, as it does those of no bytes.

    >>> room_for(0), room_for(1000)
    (128, 1064)
    """
    return max(nbytes, BUFFER_ALIGN) + alignment(nbytes + BUFFER_ALIGN)


def python_function(library: bytes, numbers: Mapping[str, int], objects: Mapping[str, Any],
                    shared: bool, table: Sequence[int], owner: Any) -> Callable[..., Any]:
    """A function that runs a program on its arguments' memory if they match those that the program
    was compiled for; else it returns NotImplemented. `backends/matching.py` defines the matching
    and the results.

    Args:
        library: The native functions of `compile/python_calls.py`.
        numbers: Fields of its record that are numbers and addresses.
        objects: Those that are objects.
        shared: Whether other threads of Python run meanwhile, perhaps the same program.
        table: The words after the record: outputs, steps and builds, three words each.
        owner: Keeps all of these alive. The function refers to it.
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
    """A function that records a call of an op, if one with such arguments was recorded before; else
    it returns NotImplemented.

    Args:
        library: The native functions of `compile/python_calls.py`.
        numbers: Fields of its record that are numbers.
        objects: Those that are objects.
        owner: Keeps all of these alive. The function refers to it.
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
    """A function of CPython, whose first argument in native code is the record."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object,
                            ctypes.py_object)(("PyCFunction_NewEx", ctypes.pythonapi))
    # Python takes the last for the function's module, and keeps it as long as the function.
    function: Callable[..., Any] = new(ctypes.addressof(method), record, owner)
    return function


# Functions of Python's C interface, mostly of the stable one, that the native function calls.
_FUNCTIONS = {
    "as_address": "PyLong_AsVoidPtr", "new_bytes": "PyBytes_FromStringAndSize",
    "keep": "Py_IncRef", "give_up": "Py_DecRef", "dict_get": "PyDict_GetItem",
    "dict_size": "PyDict_Size", "dict_set": "PyDict_SetItem", "new_object": "PyType_GenericAlloc",
    "new_tuple": "PyTuple_New", "new_list": "PyList_New", "new_dict": "PyDict_New",
    "equal": "PyObject_RichCompareBool"}


@functools.cache
def slot_places(kind: type[Any]) -> dict[str, int]:
    """Where an object of a class with slots refers to each, in bytes.

    >>> class Pair:
    ...     __slots__ = ("a", "b")
    >>> sorted(slot_places(Pair).values()) == [object.__basicsize__, object.__basicsize__ + 8]
    True
    """
    names = [name for c in kind.__mro__ for name in getattr(c, "__slots__", ())
             if name != "__weakref__"]
    tried, places = object.__new__(kind), {}
    for name in names:
        value = object()
        object.__setattr__(tried, name, value)
        words = ctypes.string_at(id(tried), kind.__basicsize__)
        places[name] = 8 * struct.unpack(f"{len(words) // 8}q", words).index(id(value))
        object.__setattr__(tried, name, None)
    return places


@functools.cache
def has_python_functions() -> bool:
    """Whether this is a Python with such functions: CPython, whose lock keeps calls apart."""
    locked: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    block = bytes(64)
    return sys.implementation.name == "cpython" and locked() and (
        np.frombuffer(block, np.uint8).__array_interface__["data"][0] == id(block) + BYTES_HEAD)


def native_address(library: bytes, symbol: str) -> int:
    """The address of one of the native functions, which stay."""
    return address_of(_loaded(library)[symbol])


@functools.cache
def _loaded(library: bytes) -> ctypes.CDLL:
    return load_library(library, "python_call")


def address_of(function: Any) -> int:
    """The address of a function of `ctypes`."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@functools.cache
def _method(library: bytes, symbol: str, flags: int) -> _MethodDef:
    return _MethodDef(b"run", native_address(library, symbol), flags, None)
