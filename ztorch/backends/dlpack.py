"""Export and import of memory by DLPack capsules, of version 1 and earlier."""

from __future__ import annotations

import ctypes
import itertools
import operator
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any, NamedTuple

from ztorch.abi import DLPACK_DELETERS
from ztorch.backends.python_calls import address_of, native_address

_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY


class ForeignMemory(NamedTuple):
    """The contents of a capsule: memory that belongs to another library."""

    address: int
    device: tuple[int, int]  # DLDeviceType, and the number of the device
    code: int  # DLDataTypeCode of an element
    bits: int  # bits of a number
    lanes: int  # numbers per element
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # elements


class _Tensor(ctypes.Structure):
    """The structure DLTensor."""

    _fields_ = (("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64))


class _Managed(ctypes.Structure):
    """The structure DLManagedTensor."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    """The structure DLManagedTensorVersioned."""

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

# References to an unclaimed capsule while we count them: a list's, a variable's, an argument's.
_OWN_REFERENCE_COUNT = 3
_USED = {name: b"used_" + name for name in _FORMS}  # the names of capsules that were consumed


class _Holder:
    """Keeps exported memory and its structures alive. DLPack's deleter drops the only reference."""

    def __init__(self, *parts: Any):
        self.parts = parts


# Exported capsules that may not be consumed yet: capsule, name, address of the holder.
_capsules: list[tuple[Any, bytes, int]] = []


def packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of an array of this shape in C order.

    >>> packed_strides((2, 3, 4))
    (12, 4, 1)
    """
    steps = itertools.accumulate(shape[:0:-1], operator.mul, initial=1)
    return tuple(steps)[::-1] if shape else ()


def export_capsule(memory: ForeignMemory, owner: Any, versioned: bool, library: bytes) -> Any:
    """A capsule that gives another library read access to memory.

    Args:
        memory: The memory, in C order.
        owner: An object that keeps the memory alive until the other library releases it.
        versioned: Whether that library reads DLPack version 1.
        library: The native functions of `compile/python_calls.py`. The deleter is one of them and
            not a Python function, since it may be called while an exception is propagated, or by a
            thread that Python does not know.
    """
    rank = len(memory.shape)
    shape = (ctypes.c_int64 * rank)(*memory.shape)
    strides = (ctypes.c_int64 * rank)(*memory.strides)
    name = [*_FORMS][versioned]
    structure = _FORMS[name]()
    structure.tensor = _Tensor(memory.address, *memory.device, rank, memory.code, memory.bits,
                               memory.lanes, shape, strides, 0)
    if versioned:
        structure.major, structure.minor, structure.flags = 1, 0, _READ_ONLY
    structure.deleter = native_address(library, [*DLPACK_DELETERS][versioned])
    holder = _Holder(structure, shape, strides, owner)
    context = (ctypes.c_void_p * 4)(id(holder), *map(address_of, (
        _api.PyGILState_Ensure, _api.PyGILState_Release, _api.Py_DecRef)))
    holder.parts += (context,)
    structure.context = ctypes.addressof(context)
    free_unclaimed()
    capsule = _new_capsule(ctypes.addressof(structure), name, None)
    _api.Py_IncRef(ctypes.py_object(holder))
    _capsules.append((capsule, name, id(holder)))
    return capsule


def free_unclaimed() -> None:
    """Releases the memory of capsules that were dropped without being consumed.

    Nothing reports that a capsule was dropped, so this runs before each export: only we refer to
    such a capsule.
    """
    for entry in [*_capsules]:
        capsule, name, owner = entry
        if not _is_valid(capsule, name):  # consumed: its consumer will call the deleter
            _capsules.remove(entry)
        elif getrefcount(capsule) <= _OWN_REFERENCE_COUNT:
            _capsules.remove(entry)
            _api.Py_DecRef(ctypes.c_void_p(owner))


def describe(capsule: Any) -> ForeignMemory | None:
    """The memory of an unconsumed capsule; None if it is not a DLPack capsule."""
    name = _name(capsule)
    if name is None:
        return None
    t = _FORMS[name].from_address(_pointer(capsule, name)).tensor
    shape = tuple(t.shape[:t.ndim])
    strides = tuple(t.strides[:t.ndim]) if t.strides else packed_strides(shape)
    return ForeignMemory((t.data or 0) + t.byte_offset, (t.device_type, t.device_id), t.code,
                         t.bits, t.lanes, shape, strides)


def take(capsule: Any) -> Callable[[], None]:
    """Consumes a capsule. The caller calls the result once, to release the memory."""
    name = _name(capsule)
    assert name is not None
    address = _pointer(capsule, name)
    deleter = _FORMS[name].from_address(address).deleter
    _rename(capsule, _USED[name])

    def release() -> None:
        if deleter:
            _Deleter(deleter)(address)

    return release


def _name(capsule: Any) -> bytes | None:
    return next((n for n in _FORMS if _is_valid(capsule, n)), None)
