"""DLPack for memory of GPUs: tensors lent to other libraries of this process, and theirs to us,
without a copy. What lies on the CPU goes by way of NumPy.

The structures are those of DLPack's header: a tensor with its owner, before and since version 1.
"""

from __future__ import annotations

import ctypes
import itertools
import operator
from sys import getrefcount
from typing import Any

import numpy as np

from ztorch.arrays.memory import Allocation, DevicePool, LentMemory, memory
from ztorch.arrays.node import TensorNode, computed
from ztorch.arrays.specs import spec
from ztorch.compile.python_calls import deleter
from ztorch.dtypes import ALL, DType, bf16
from ztorch.errors import DataError, DeviceError, Unsupported

CPU = 1
BACKENDS = {2: "cuda", 10: "rocm"}  # whose buffers are addresses that another library can use
TYPES = {name: number for number, name in BACKENDS.items()}
_CODES = {"s": 0, "u": 1, "f": 2, "b": 6}  # of kinds of dtypes
_BFLOAT = 4
_READ_ONLY = 1  # a flag
_NO_SYNC = -1  # as a stream: the consumer waits by itself


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
    """What is lent, and all that has to stay until it is given back: DLPack's deleter gives up the
    reference that the structure holds."""

    def __init__(self, *parts: Any):
        self.parts = parts


# Capsules that nobody may have taken yet, with the address of the owner.
_capsules: list[tuple[Any, bytes, int]] = []


def device_of(place: str) -> tuple[int, int]:
    """DLPack's type and number of the device that a memory belongs to.

    Raises:
        DeviceError: Other libraries cannot use that memory.
    """
    backend, _, ordinal = place.partition(":")
    if place == "cpu":
        return CPU, 0
    if backend not in TYPES:
        raise DeviceError(f"DLPack lends no memory of {place}: its buffers have no address that "
                          "another library could use; use .to('cpu')")
    return TYPES[backend], int(ordinal)


def capsule_of(x: Any, stream: Any, max_version: Any, dl_device: Any, copy: Any) -> Any:
    """What `__dlpack__` of a tensor gives; the arguments are its own, and as DLPack has them."""
    here = device_of(x.device)
    if dl_device is not None and tuple(dl_device) != here:
        if dl_device[0] != CPU or copy is False:
            raise BufferError(f"a tensor of {x.device} is lent there, or copied to the CPU, not to "
                              f"DLPack's device {tuple(dl_device)}")
        return x.to("cpu").__dlpack__(max_version=max_version)
    if here[0] != CPU:
        x = x.realize().to(x.device, copy=bool(copy))
        return lent(x.node, stream, max_version is not None and max_version[0] >= 1)
    if x.dtype is bf16:
        raise BufferError("NumPy's DLPack has no bfloat16; use .astype('float32')")
    options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
    return x.numpy().__dlpack__(**{k: v for k, v in options.items() if v is not None})


def lent(node: TensorNode, stream: Any, versioned: bool) -> Any:
    """A capsule with the memory of a computed tensor of a GPU, which is finished by now.

    Args:
        node: The tensor.
        stream: The consumer's stream. We wait for our own work here, so any will do.
        versioned: Whether the consumer knows version 1, which can say that it must not write.

    Raises:
        BufferError: The stream is none.
    """
    own, block = node.spec, node.block
    number, ordinal = device_of(own.memory)
    _need_stream(BACKENDS[number], stream)
    pool = memory(own.memory)
    assert isinstance(pool, DevicePool) and isinstance(block, Allocation)
    if stream != _NO_SYNC:
        pool.device.synchronise()
    d = own.dtype
    shape = (ctypes.c_int64 * len(own.shape))(*own.shape)
    sizes = itertools.accumulate(own.shape[:0:-1], operator.mul, initial=1)
    strides = (ctypes.c_int64 * len(own.shape))(*[*sizes][len(own.shape) - 1::-1])
    name = [*_FORMS][versioned]
    made = _FORMS[name]()
    made.tensor = _Tensor(block.handle.handle, number, ordinal, len(own.shape),
                          _BFLOAT if d is bf16 else _CODES[d.kind], d.bits, 1, shape, strides, 0)
    if d.kind == "b":
        made.tensor.bits = 8
    if versioned:
        made.major, made.minor, made.flags = 1, 0, _READ_ONLY
    made.deleter, rest = deleter(versioned)
    owner = _Owner(made, shape, strides, block)
    context = (ctypes.c_void_p * 4)(id(owner), *rest)
    owner.parts += (context,)
    made.context = ctypes.addressof(context)
    _drop_abandoned()
    capsule = _new_capsule(ctypes.addressof(made), name, None)
    _api.Py_IncRef(ctypes.py_object(owner))
    _capsules.append((capsule, name, id(owner)))
    return capsule


def _drop_abandoned() -> None:
    """Ends what was lent to nobody: capsules that only we refer to. Nothing tells when that
    happens, so it is looked for before the next one is made."""
    for entry in [*_capsules]:
        capsule, name, owner = entry
        if not _is_valid(capsule, name):  # taken: its deleter will be called
            _capsules.remove(entry)
        elif getrefcount(capsule) <= _OWN_REFERENCES:
            _capsules.remove(entry)
            _api.Py_DecRef(ctypes.c_void_p(owner))


def _need_stream(backend: str, stream: Any) -> None:
    """As DLPack has it: on CUDA 0 could mean two streams, on ROCm 1 and 2 are none."""
    wrong = (0,) if backend == "cuda" else (1, 2)
    if stream is not None and (type(stream) is not int or stream < _NO_SYNC or stream in wrong):
        raise BufferError(f"stream={stream!r} is no stream of {backend}; use -1 to wait by "
                          "yourself, or leave it out")


def lent_by(x: Any) -> str | None:
    """The memory of a GPU that something, which is no tensor of ours, lends; None if none."""
    device = None if type(x) is np.ndarray else getattr(x, "__dlpack_device__", None)
    if device is None:
        return None
    number, ordinal = map(int, device())
    return f"{BACKENDS[number]}:{ordinal}" if number in BACKENDS else None


def borrowed(label: str, x: Any, place: str) -> TensorNode:
    """A tensor of what another library lends of a GPU's memory, without a copy.

    Args:
        label: What errors call it.
        x: What has `__dlpack__`.
        place: The memory of a GPU that it lends.

    Raises:
        DataError: We cannot use that device, or its elements do not lie in C order.
        Unsupported: Its dtype is none of ours.
    """
    try:
        pool = memory(place)
    except DeviceError as error:
        raise DataError(f"{label} lies on {place}, which ztorch cannot use here ({error}); copy it "
                        "to the CPU first, such as with .cpu() or .get()") from None
    assert isinstance(pool, DevicePool)
    stream = pool.device.queue_address
    try:
        capsule = x.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # from before version 1
        capsule = x.__dlpack__(stream=stream)
    name = next((n for n in _FORMS if _is_valid(capsule, n)), None)
    if name is None:
        raise DataError(f"{label}: __dlpack__ gives no capsule of DLPack, but {capsule!r}")
    at = _pointer(capsule, name)
    theirs = _FORMS[name].from_address(at)
    t, deleter = theirs.tensor, theirs.deleter
    shape = tuple(t.shape[:t.ndim])
    steps = itertools.accumulate(shape[:0:-1], operator.mul, initial=1)
    packed = [*steps][len(shape) - 1::-1] if shape else []
    if t.strides and any(n > 1 and a != b for n, a, b in
                         zip(shape, t.strides[:t.ndim], packed, strict=True)):
        raise DataError(f"{label} lies on {place}, but not in C order; copy it first, such as with "
                        ".contiguous()")
    own = spec(shape, _dtype(label, t), place)

    def give_back() -> None:
        if deleter:
            _Deleter(deleter)(at)

    if not own.size:
        return computed(own, pool.alloc(0))
    buffer = pool.device.borrow((t.data or 0) + t.byte_offset, own.nbytes, give_back)
    _rename(capsule, _USED[name])  # from here on it is ours to give back
    return computed(own, Allocation(LentMemory(pool), own.nbytes, buffer, buffer))


def _dtype(label: str, t: Any) -> DType:
    for d in ALL:
        code = _BFLOAT if d is bf16 else _CODES[d.kind]
        bits = 8 if d.kind == "b" else d.bits
        if (code, bits, 1) == (t.code, t.bits, t.lanes):
            return d
    raise Unsupported(f"{label} has elements of DLPack's type {t.code} with {t.bits} bits and "
                      f"{t.lanes} lanes; tensors have none such")


