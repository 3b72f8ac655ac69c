"""Compiled code as functions that CPython calls without `ctypes`, which takes longer than a small
kernel. A short call keeps the interpreter's lock, so no two of them run at the same time."""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.abi import (
    BUFFER_ALIGN,
    BYTES_HEAD,
    PYTHON_CALL,
    PYTHON_RECORD,
    align_up,
    alignment,
)
from ztorch.backends.library import load_library

_FAST_CALL = 0x80  # METH_FASTCALL


class _MethodDef(ctypes.Structure):
    """PyMethodDef, of Python's stable interface."""

    _fields_ = (("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p))


def contents(block: bytes) -> int:
    """The address of what a bytes object of ours holds: the first in it that is aligned."""
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


def python_function(library: bytes, addresses: tuple[int, int, int], stack: int, inputs: int,
                    returned: int, shared: bool, owner: Any) -> Callable[..., Any]:
    """A function that takes the memory of each input and output of a program and runs it: an
    address, or a bytes object, which nobody may have seen yet if the program fills it.

    Args:
        library: The native functions of `compile/python_calls.py`.
        addresses: Of the program's code, params and arena.
        stack: If not 0, the arena is so many bytes of the stack, and that address is not used.
        inputs: How many inputs the program has.
        returned: If not 0, the function takes no output: it returns a bytes object that holds the
            only one, of so many bytes.
        shared: Whether other threads of Python run meanwhile, perhaps the same program.
        owner: What keeps the code, params and arena. The function refers to it.
    """
    api = ctypes.pythonapi
    functions = [api.PyLong_AsVoidPtr, api.PyBytes_FromStringAndSize, api.Py_IncRef]
    lock = (address_of(api.PyEval_SaveThread), address_of(api.PyEval_RestoreThread))
    record = struct.pack(f"{len(PYTHON_RECORD)}Q", *addresses, stack, inputs,
                         room_for(returned) if returned else 0,
                         *map(address_of, functions), *(lock if shared else (0, 0)), id(None),
                         id(bytes))
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object,
                            ctypes.py_object)(("PyCFunction_NewEx", api))
    # Python takes the last for the function's module, and keeps it as long as the function.
    function: Callable[..., Any] = new(ctypes.addressof(_method(library)), record, owner)
    return function


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
def _method(library: bytes) -> _MethodDef:
    return _MethodDef(b"run", native_address(library, PYTHON_CALL), _FAST_CALL, None)
