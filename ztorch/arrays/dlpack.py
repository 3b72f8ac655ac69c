"""DLPack: lends tensors to other libraries in this process, and borrows theirs. Tensors on the CPU
go through NumPy.

A tensor never changes, and recorded operations may still read it. PyTorch ignores DLPack's
read-only flag, so the consumer gets a copy by default; the memory itself is lent only with
`copy=False`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztorch.arrays.memory import Allocation, DevicePool, LentMemory, memory
from ztorch.arrays.node import TensorNode, computed
from ztorch.arrays.specs import spec
from ztorch.backends import dlpack as backend_dlpack
from ztorch.backends.dlpack import ForeignMemory, describe, packed_strides, take
from ztorch.backends.gpu import GpuDevice
from ztorch.compile.python_calls import python_calls
from ztorch.dtypes import ALL, DType, to_storage
from ztorch.errors import DataError, DeviceError, Unsupported

CPU = 1  # a type of devices in DLPack's header, like the keys below
BACKENDS = {2: "cuda", 10: "rocm"}  # their buffers are addresses, usable by other libraries
TYPES = {name: number for number, name in BACKENDS.items()}
# DLPack's code of each kind of dtype, and of those that NumPy lacks.
_CODES = {"s": 0, "u": 1, "f": 2, "b": 6, "bfloat16": 4}
_NO_SYNC = -1  # stream argument: the consumer synchronizes by itself


def device_of(place: str) -> tuple[int, int]:
    """DLPack's device type and index for a memory.

    Raises:
        DeviceError: Other libraries cannot use this memory.
    """
    backend, _, ordinal = place.partition(":")
    if place == "cpu":
        return CPU, 0
    if backend not in TYPES:
        raise DeviceError(f"DLPack lends no memory of {place}: its buffers have no address that "
                          "the host or another library could use; use .to('cpu')")
    return TYPES[backend], int(ordinal)


def device_of_tensor(x: Any) -> tuple[int, int]:
    """DLPack's device type and index for a tensor, as another library sees it: the CPU if the
    device works in memory that the host can read.

    Raises:
        DeviceError: Other libraries cannot use the tensor's memory.
    """
    if x.device != "cpu" and x.device.partition(":")[0] not in TYPES:
        node = x.realize().node
        if memory(x.device).host_view(node.block, node.spec.nbytes) is not None:
            return CPU, 0
    return device_of(x.device)


def capsule_of(x: Any, stream: Any, max_version: Any, dl_device: Any, copy: Any) -> Any:
    """The result of a tensor's `__dlpack__`; the arguments are those of `__dlpack__`."""
    if dl_device is not None and dl_device[0] == CPU and x.device.partition(":")[0] not in TYPES:
        device = CPU, 0  # goes through NumPy, whatever the device
    else:
        device = device_of_tensor(x)
    if dl_device is not None and tuple(dl_device) != device:
        if dl_device[0] != CPU or copy is False:
            raise BufferError(f"a tensor of {x.device} is lent there, or copied to the CPU, not to "
                              f"DLPack's device {tuple(dl_device)}")
        return x.to("cpu").__dlpack__(max_version=max_version)
    versioned = max_version is not None and max_version[0] >= 1
    copies = copy is not False
    if not (versioned or copies):
        raise BufferError("a tensor's memory must not be written, which DLPack can say since "
                          "version 1; pass max_version=(1, 0), or leave copy=False out")
    if device[0] != CPU:
        return lent(x.realize().to(x.device, copy=copies).node, stream, versioned)
    if not x.dtype.in_numpy:
        return lent_copy(x, versioned, copies)
    if not versioned:
        return x.numpy().copy().__dlpack__(stream=stream)
    return x.numpy().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device,
                                copy=copies)


def lent_copy(x: Any, versioned: bool, copies: bool) -> Any:
    """A capsule with a copy of a tensor of the CPU, whose dtype NumPy's DLPack lacks."""
    if not copies:
        raise BufferError(f"NumPy's DLPack has no {x.dtype}, so it is copied; leave copy=False out")
    words = to_storage(x.dtype, x._readable())
    description = ForeignMemory(words.__array_interface__["data"][0], (CPU, 0), *_code(x.dtype), 1,
                                words.shape, packed_strides(words.shape))
    return backend_dlpack.export_capsule(description, words, versioned, _library())


def _library() -> bytes:
    library = python_calls()
    if library is None:
        raise Unsupported("DLPack of bfloat16 and of GPUs needs a processor that LLVM makes code "
                          "for")
    return library


def lent(node: TensorNode, stream: Any, versioned: bool) -> Any:
    """A capsule with the memory of a computed GPU tensor.

    Args:
        node: The tensor.
        stream: The consumer's stream. All work on the tensor is finished, so any stream is valid.
        versioned: Whether the consumer knows DLPack version 1, which has a read-only flag.

    Raises:
        BufferError: The stream is invalid.
    """
    own, block = node.spec, node.block
    number, ordinal = device_of(own.memory)
    _need_stream(BACKENDS[number], stream)
    pool = memory(own.memory)
    assert isinstance(pool, DevicePool) and isinstance(block, Allocation)
    if stream != _NO_SYNC:
        pool.device.synchronize()
    description = ForeignMemory(block.handle.handle, (number, ordinal), *_code(own.dtype), 1,
                                own.shape, packed_strides(own.shape))
    return backend_dlpack.export_capsule(description, block, versioned, _library())


def _code(d: DType) -> tuple[int, int]:
    """DLPack's code of a dtype's kind, and the number of bits of an element."""
    return _CODES[d.kind if d.in_numpy else d.long], 8 if d.kind == "b" else d.bits


def _need_stream(backend: str, stream: Any) -> None:
    """Raises for streams that DLPack excludes: 0 on CUDA is ambiguous, 1 and 2 do not exist on
    ROCm."""
    wrong = (0,) if backend == "cuda" else (1, 2)
    if stream is not None and (type(stream) is not int or stream < _NO_SYNC or stream in wrong):
        raise BufferError(f"stream={stream!r} is not a stream of {backend}; use -1 to wait by "
                          "yourself, or leave it out")


def lent_by(x: Any) -> str | None:
    """The GPU memory that an object of another library exposes, or None."""
    device = None if type(x) is np.ndarray else getattr(x, "__dlpack_device__", None)
    if device is None:
        return None
    number, ordinal = map(int, device())
    return f"{BACKENDS[number]}:{ordinal}" if number in BACKENDS else None


def borrowed(label: str, x: Any, place: str) -> TensorNode:
    """A tensor on GPU memory that another library lends, without a copy.

    Args:
        label: The object's name in errors.
        x: An object with `__dlpack__`.
        place: The GPU memory that it is in.

    Raises:
        DataError: The device cannot be used here, or the elements are not in C order.
        Unsupported: There is no such dtype here.
    """
    try:
        pool = memory(place)
    except DeviceError as error:
        raise DataError(f"{label} is on {place}, which ztorch cannot use here ({error}); copy it "
                        "to the CPU first, such as with .cpu() or .get()") from None
    assert isinstance(pool, DevicePool)
    assert isinstance(pool.device, GpuDevice)
    stream = pool.device.queue_address
    try:
        capsule = x.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # an object older than DLPack version 1
        capsule = x.__dlpack__(stream=stream)
    theirs = describe(capsule)
    if theirs is None:
        raise DataError(f"{label}: __dlpack__ gives no capsule of DLPack, but {capsule!r}")
    shape = theirs.shape
    if any(n > 1 and a != b for n, a, b in
           zip(shape, theirs.strides, packed_strides(shape), strict=True)):
        raise DataError(f"{label} is on {place}, but not in C order; copy it first, such as with "
                        ".contiguous()")
    own = spec(shape, _dtype(label, theirs), place)
    if not own.size:
        return computed(own, pool.alloc(0))
    buffer = pool.device.borrow(theirs.address, own.nbytes, take(capsule))
    return computed(own, Allocation(LentMemory(pool), own.nbytes, buffer, buffer))


def _dtype(label: str, theirs: ForeignMemory) -> DType:
    for d in ALL:
        if (*_code(d), 1) == (theirs.code, theirs.bits, theirs.lanes):
            return d
    raise Unsupported(f"{label} has elements of DLPack's type {theirs.code} with {theirs.bits} "
                      f"bits and {theirs.lanes} lanes; tensors have none such")
