"""DLPack's structures and capsules, before version 1 and since."""

from __future__ import annotations

import ctypes
import itertools
import operator
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any, NamedTuple

from ztorch.abi import DLPACK_DELETERS
from ztorch.backends.python_calls import address_of, native_address

_READ_ONLY = 1  # a flag


class Description(NamedTuple):
    """Memory that one library lends to another."""

    address: int
    device: tuple[int, int]  # DLPack's number of its kind, and which of them
    code: int  # DLPack's number of the kind of elements
    bits: int  # of an element
    lanes: int  # numbers in an element
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64))


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _Tensor))


_FORMS: dict[bytes, type[Any]] = {b"dltensor": _Managed, b"dltensor_versioned": _Versioned}
_api = ctypes.pythonapi
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p,
                                 ctypes.c_void_p)(("PyCapsule_New", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", _api))

_OWN_REFERENCES = 3  # of a capsule: the list's, a variable, an argument
_USED = {name: b"used_" + name for name in _FORMS}  # of capsules that were taken


class _Owner:
    """A loan, and all that has to stay until it is given back: DLPack's deleter gives up the
    reference that the structure holds."""

    def __init__(self, *parts: Any):
        self.parts = parts


# Capsules that nobody may have taken yet, with the address of the owner.
_capsules: list[tuple[Any, bytes, int]] = []


def packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of elements in C order.

    >>> packed_strides((2, 3, 4))
    (12, 4, 1)
    """
    steps = itertools.accumulate(shape[:0:-1], operator.mul, initial=1)
    return tuple(steps)[::-1] if shape else ()


def lent(memory: Description, owner: Any, versioned: bool, library: bytes) -> Any:
    """A capsule with memory for another library, which must not write there.

    Args:
        memory: The memory, in C order.
        owner: The object that keeps the memory alive, until the other library returns it.
        versioned: Whether that library knows version 1.
        library: The native functions of `compile/python_calls.py`. The deleter is not a function of
            Python's: it may be called while an error is under way, or by a thread that Python does
            not know.
    """
    rank = len(memory.shape)
    shape = (ctypes.c_int64 * rank)(*memory.shape)
    strides = (ctypes.c_int64 * rank)(*memory.strides)
    name = [*_FORMS][versioned]
    made = _FORMS[name]()
    made.tensor = _Tensor(memory.address, *memory.device, rank, memory.code, memory.bits,
                          memory.lanes, shape, strides, 0)
    if versioned:
        made.major, made.minor, made.flags = 1, 0, _READ_ONLY
    made.deleter = native_address(library, [*DLPACK_DELETERS][versioned])
    kept = _Owner(made, shape, strides, owner)
    context = (ctypes.c_void_p * 4)(id(kept), *map(address_of, (
        _api.PyGILState_Ensure, _api.PyGILState_Release, _api.Py_DecRef)))
    kept.parts += (context,)
    made.context = ctypes.addressof(context)
    drop_abandoned()
    capsule = _new_capsule(ctypes.addressof(made), name, None)
    _api.Py_IncRef(ctypes.py_object(kept))
    _capsules.append((capsule, name, id(kept)))
    return capsule


def drop_abandoned() -> None:
    """Ends loans that nobody took: capsules that only we refer to. Nothing tells when that
    happens, so it is looked for before the next one is made."""
    for entry in [*_capsules]:
        capsule, name, owner = entry
        if not _is_valid(capsule, name):  # taken: its deleter will be called
            _capsules.remove(entry)
        elif getrefcount(capsule) <= _OWN_REFERENCES:
            _capsules.remove(entry)
            _api.Py_DecRef(ctypes.c_void_p(owner))


def described(capsule: Any) -> Description | None:
    """The content of a capsule that nobody has taken; None if it is none of DLPack's."""
    name = _name(capsule)
    if name is None:
        return None
    t = _FORMS[name].from_address(_pointer(capsule, name)).tensor
    shape = tuple(t.shape[:t.ndim])
    return Description((t.data or 0) + t.byte_offset, (t.device_type, t.device_id), t.code, t.bits,
                       t.lanes, shape, tuple(t.strides[:t.ndim]) if t.strides else
                       packed_strides(shape))


def taken(capsule: Any) -> Callable[[], None]:
    """Takes the contents of a capsule. Whoever does so calls the result once, to give it back."""
    name = _name(capsule)
    assert name is not None
    at = _pointer(capsule, name)
    deleter = _FORMS[name].from_address(at).deleter
    _rename(capsule, _USED[name])

    def give_back() -> None:
        if deleter:
            _Deleter(deleter)(at)

    return give_back


def _name(capsule: Any) -> bytes | None:
    return next((n for n in _FORMS if _is_valid(capsule, n)), None)
