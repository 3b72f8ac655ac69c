"""Parameters of CUDA launches: addresses, and the tensor maps of asynchronous copies (TMA)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ztorch.backends.cuda_calls import call_driver, driver
from ztorch.backends.handles import TensorMap
from ztorch.errors import DeviceError

MAP_BYTES = 128  # size of a tensor map
MAP_ALIGN = 128  # alignment in bytes of a tensor map; newer drivers require it
ENCODER = b"cuTensorMapEncodeTiled"
ENCODER_VERSION = 12000  # the CUDA version that introduced the encoder: 12.0
DTYPES = {"f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32"}


class LaunchParameters:
    """The parameters of one launch, in memory that lives as long as this object.

    Args:
        where: The device, for error messages.
        addresses: The addresses of the kernel's buffers.
        maps: The kernel's tensor maps, each with the address of its buffer.
    """

    def __init__(self, where: str, addresses: Sequence[int],
                 maps: Sequence[tuple[int, TensorMap]]):
        count = len(addresses)
        self._numbers = (ctypes.c_uint64 * max(1, count))(*addresses)
        self._memory = ctypes.create_string_buffer(MAP_BYTES * len(maps) + MAP_ALIGN)
        first = -(-ctypes.addressof(self._memory) // MAP_ALIGN) * MAP_ALIGN
        pointers = [ctypes.addressof(self._numbers) + 8 * k for k in range(count)]
        for k, (address, tensor_map) in enumerate(maps):
            pointers.append(first + k * MAP_BYTES)
            encode(where, pointers[-1], address, tensor_map)
        self._pointers = (ctypes.c_void_p * len(pointers))(*pointers)
        self.address = ctypes.addressof(self._pointers)


def encode(where: str, target: int, address: int, tensor_map: TensorMap) -> None:
    """Has the driver write a tensor map to the address `target`.

    Calls the driver's own function, because some versions of cuda-bindings return an object that
    is not aligned.
    """
    cuda = driver()
    pointer, status = call_driver(where, "cuGetProcAddress", ENCODER, ENCODER_VERSION, 0)
    if not pointer or int(status) != 0:
        raise DeviceError(f"{where}: this driver has no {ENCODER.decode()}; update it to CUDA 12 "
                          "or newer, or compile for cuda:sm_90")
    axes = len(tensor_map.extents)
    kind = getattr(cuda.CUtensorMapDataType,
                   f"CU_TENSOR_MAP_DATA_TYPE_{DTYPES[tensor_map.dtype]}")
    call = ctypes.CFUNCTYPE(ctypes.c_int, *_ARGUMENTS)(int(pointer))
    wide, narrow = ctypes.c_uint64 * axes, ctypes.c_uint32 * axes
    code = call(target, int(kind), axes, address + tensor_map.at, wide(*tensor_map.extents),
                (ctypes.c_uint64 * max(1, axes - 1))(*tensor_map.pitches), narrow(*tensor_map.box),
                narrow(*[1] * axes), *(int(x) for x in (
                    cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
                    cuda.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
                    cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                    cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)))
    if code:
        raise DeviceError(f"{where}: {ENCODER.decode()}: {cuda.CUresult(code).name} for "
                          f"{tensor_map}")


_ARGUMENTS: tuple[Any, ...] = (
    ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p,
    *[ctypes.c_void_p] * 4, *[ctypes.c_int] * 4)
