"""Compiled code as functions that CPython calls without `ctypes`, which takes longer than a small
kernel.

One native function, compiled once, is what Python's interface for C calls; for each program there
is an object of it with a record of what to run. Such a call keeps the interpreter's lock, so no
two of them run at the same time.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.backends.library import load_library
from ztorch.codegen.assemble import assemble, llvm_identity
from ztorch.codegen.elf import link
from ztorch.codegen.object_cache import cached, row
from ztorch.codegen.targets import Target
from ztorch.compile.targeting import target_for
from ztorch.errors import Unsupported
from ztorch.host import assets
from ztorch.runtime.devices import resolve
from ztorch.runtime.executable import HostMemoryCall

MOST_CYCLES = 150_000  # that other threads of Python wait: some 50 microseconds
HEAD = bytes.__basicsize__ - 1  # bytes of a bytes object before its contents, which a zero ends
TYPE_AT = object.__basicsize__ - 8  # where an object refers to its type, in bytes
RECORD = ("code", "params", "arena", "inputs", "bytes", "as_address", "new_bytes", "keep", "none",
          "bytes_type")
SYMBOL = "zt.python_call"
DELETERS = {"zt.give_back": 48, "zt.give_back_versioned": 8}  # where the structures have a context
_FAST_CALL = 0x80  # METH_FASTCALL


class _MethodDef(ctypes.Structure):
    """PyMethodDef, of Python's stable interface."""

    _fields_ = (("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p))


def python_call(call: HostMemoryCall, returned: int = 0) -> Callable[..., Any] | None:
    """A function that takes the memory of each input and output of a program and runs it: an
    address, or a bytes object, which nobody may have seen yet if the program fills it.

    Args:
        call: The function of a program.
        returned: If not 0, the function takes no output: it returns a bytes object of so many
            bytes with the only one.

    Returns:
        The function; `None` where it takes long, keeps several workers busy, or this Python has no
        such interface. Whoever has it keeps the program.
    """
    if call.workers > 1 or call.function.cycles > MOST_CYCLES:
        return None
    method = _method()
    if method is None:
        return None
    api = ctypes.pythonapi
    functions = api.PyLong_AsVoidPtr, api.PyBytes_FromStringAndSize, api.Py_IncRef
    record = struct.pack(
        f"{len(RECORD)}Q", *call.addresses, len(call.function.inputs), returned,
        *(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions), id(None), id(bytes))
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", api))
    function: Callable[..., Any] = new(ctypes.addressof(method), record, None)
    return function


def contents(block: bytes) -> int:
    """The address of what a bytes object holds."""
    return id(block) + HEAD


@functools.cache
def _method() -> _MethodDef | None:
    """What Python calls; None if it has no lock that keeps calls apart, or is not CPython."""
    locked: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    block = bytes(64)
    if sys.implementation.name != "cpython" or not locked() or (
            np.frombuffer(block, np.uint8).__array_interface__["data"][0] != contents(block)):
        return None
    code = _code(SYMBOL)
    return None if code is None else _MethodDef(b"run", code, _FAST_CALL, None)


def deleter(versioned: bool) -> tuple[int, tuple[int, ...]]:
    """The address of DLPack's deleter for tensors that we lend, and what its context holds after
    the address of the owner. It is no function of Python's: it may be called while an error is
    under way, or by a thread that Python does not know.

    Args:
        versioned: Whether it is for the structure since version 1.

    Raises:
        Unsupported: Code for this processor is not made by LLVM.
    """
    code = _code([*DELETERS][versioned])
    if code is None:
        raise Unsupported("DLPack of GPUs needs a processor that LLVM makes code for")
    api = ctypes.pythonapi
    return code, tuple(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (
        api.PyGILState_Ensure, api.PyGILState_Release, api.Py_DecRef))


@functools.cache
def _code(symbol: str) -> int | None:
    target = target_for(resolve("cpu"))
    if target.assembler != "assemble":
        return None
    return ctypes.cast(load_library(_library(target), "python_call")[symbol], ctypes.c_void_p).value


def _library(target: Target) -> bytes:
    template = assets.folder("templates") / "llvm" / "python_call.ll.j2"

    def linked() -> bytes:
        from ztorch.codegen.templates import environment  # not for code that is in the cache

        text = environment().get_template("llvm/python_call.ll.j2").render(
            head=HEAD, type_at=TYPE_AT, fields=RECORD, triple=target.llvm_triple,
            deleters=DELETERS, cpu=target.llvm_cpu)
        return link(assemble(text, target), soname="python_call.so", exports=[SYMBOL, *DELETERS])

    return cached((template.read_bytes(), repr((HEAD, TYPE_AT, RECORD, DELETERS)), row(target),
                   llvm_identity()), linked)
