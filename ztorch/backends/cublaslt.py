"""Matrix products by cuBLASLt, where it is on this machine; recorded as parts of graphs.

All of our matrices have contiguous rows, and those of cuBLASLt contiguous columns: it computes the
transpose of a product, b before a. Products get no workspace.
"""

from __future__ import annotations

import ctypes
import functools
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ztorch.abi import LIBRARY_CALL
from ztorch.errors import DeviceError, OutOfMemory

NAME = "cublaslt"
# The values of enumerations in cublasLt.h, cublas_api.h and library_types.h.
_TYPES = {"f32": 0, "f16": 2, "bf16": 14}  # CUDA_R_...
_COMPUTE = {23: 68, 10: 77}  # CUBLAS_COMPUTE_32F, 32F_FAST_TF32, by mantissa bits of float32
_TRANSPOSE = {0: 3, 1: 4}  # CUBLASLT_MATMUL_DESC_TRANSA, TRANSB
_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)  # CUBLASLT_MATMUL_PREF_..., alignments of A, B, C, D
_ALLOC_FAILED = 3  # CUBLAS_STATUS_ALLOC_FAILED
BUFFER_ALIGN = 256  # of each buffer that a launch gets, in bytes
_pointer, _word, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t


class _Heuristic(ctypes.Structure):
    """The structure cublasLtMatmulHeuristicResult_t."""

    _fields_ = (("algorithm", ctypes.c_uint64 * 8), ("workspace", _size), ("state", _word),
                ("waves", ctypes.c_float), ("reserved", _word * 4))


# The arguments of each function after the prefix cublasLt; all but these return a status.
_ARGUMENTS: dict[str, list[Any]] = {
    "Create": [_pointer], "Destroy": [_pointer],
    "MatmulDescCreate": [_pointer, _word, _word], "MatmulDescDestroy": [_pointer],
    "MatmulDescSetAttribute": [_pointer, _word, _pointer, _size],
    "MatrixLayoutCreate": [_pointer, _word, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64],
    "MatrixLayoutDestroy": [_pointer],
    "MatmulPreferenceCreate": [_pointer], "MatmulPreferenceDestroy": [_pointer],
    "MatmulPreferenceSetAttribute": [_pointer, _word, _pointer, _size],
    "MatmulAlgoGetHeuristic": [*[_pointer] * 7, _word, _pointer, _pointer],
    "Matmul": [*[_pointer] * 14, _size, _pointer]}


class Cublaslt:
    """The library. Calls need the context of a device, in which a handle was created.

    Args:
        path: Its file.
    """

    def __init__(self, path: str):
        library = ctypes.CDLL(path)
        self._functions = {name: library[f"cublasLt{name}"] for name in _ARGUMENTS}
        for name, function in self._functions.items():
            function.argtypes = _ARGUMENTS[name]
        version = library.cublasLtGetVersion
        version.restype = _size
        number = version()
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def call(self, name: str, *args: Any) -> None:
        """Calls a function. A status that is not success is an error with the name of the call."""
        status = self._functions[name](*args)
        if status:
            kind = OutOfMemory if status == _ALLOC_FAILED else DeviceError
            raise kind(f"cuBLASLt {self.version}: cublasLt{name}: status {status}")

    def created(self, name: str, *args: Any) -> ctypes.c_void_p:
        """A new object: a handle, a descriptor, a layout or a preference."""
        made = ctypes.c_void_p()
        self.call(f"{name}Create", ctypes.byref(made), *args)
        return made

    def handle(self) -> ctypes.c_void_p:
        """A new handle in the current context."""
        return self.created("")


@functools.cache
def cublaslt() -> Cublaslt | None:
    """cuBLASLt, from NVIDIA's package or the system; None if it is not there."""
    for path in _paths():
        try:
            return Cublaslt(path)
        except (OSError, AttributeError):
            continue
    return None


def _paths() -> Iterator[str]:
    for folder in map(Path, sys.path):
        for part in ("nvidia/cu13/lib/libcublasLt.so.13", "nvidia/cublas/lib/libcublasLt.so.12"):
            if (folder / part).exists():
                yield str(folder / part)
    yield from ("libcublasLt.so.13", "libcublasLt.so.12")


class ProductCall(NamedTuple):
    """A product as the code of a program describes it: the attributes of `library_product`."""

    m: int
    n: int
    k: int
    starts: tuple[int, int, int]  # of c, a and b in their buffers, in bytes
    pitches: tuple[int, int, int]  # of their lines, in elements
    transposed: tuple[bool, bool]  # a and b
    dtypes: tuple[str, str]  # of c, and of a and b
    mantissa_bits: int  # of float32 operands that count
    places: tuple[int, int, int]  # numbers of c, a and b among the buffers of a launch


def product_call(image: bytes) -> ProductCall | None:
    """The product that a part of a program's code describes; None if it is a module of kernels."""
    if not image.startswith(LIBRARY_CALL):
        return None
    fields = json.loads(image[len(LIBRARY_CALL):])
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    return ProductCall(**fields)


class LoadedProduct:
    """A product with its descriptors, and the algorithm that the library's rules choose.

    Args:
        library: The library.
        handle: Its handle in the current context.
        product: The product.
    """

    workspace = 0  # bytes that a call writes besides its result

    def __init__(self, library: Cublaslt, handle: ctypes.c_void_p, product: ProductCall):
        self.library, self.handle, self.product = library, handle, product
        self._objects: list[tuple[str, ctypes.c_void_p]] = []
        try:
            self._describe()
            self.algorithm = self._chosen()
        except DeviceError:
            self.close()
            raise

    def _describe(self) -> None:
        p = self.product
        if p.mantissa_bits not in _COMPUTE or not {*p.dtypes} <= _TYPES.keys():
            raise DeviceError(f"cuBLASLt has no products of {p.dtypes[1]} with {p.mantissa_bits} "
                              "bits of mantissa here")
        self.operation = self._object("MatmulDesc", _COMPUTE[p.mantissa_bits], _TYPES["f32"])
        c, of = (_TYPES[d] for d in p.dtypes)
        # Its first operand is our b. A matrix whose columns are contiguous here is one of its rows.
        sides = ((p.n, p.k, p.transposed[1], p.pitches[2]), (p.k, p.m, p.transposed[0],
                                                             p.pitches[1]))
        self.layouts = []
        for side, (rows, columns, transposed, pitch) in enumerate(sides):
            if transposed:
                rows, columns = columns, rows
                self._set("MatmulDesc", self.operation, _TRANSPOSE[side], ctypes.c_int32(1))
            self.layouts.append(self._object("MatrixLayout", of, rows, columns, pitch))
        self.layouts.append(self._object("MatrixLayout", c, p.n, p.m, p.pitches[0]))

    def _chosen(self) -> Any:
        """The algorithm without a workspace for matrices at these addresses."""
        preference, p = self._object("MatmulPreference"), self.product
        self._set("MatmulPreference", preference, _WORKSPACE, ctypes.c_uint64(0))
        for attribute, place in zip(_ALIGNMENTS, (2, 1, 0, 0), strict=True):
            self._set("MatmulPreference", preference, attribute, ctypes.c_uint32(
                math.gcd(BUFFER_ALIGN, p.starts[place])))
        result, count = _Heuristic(), ctypes.c_int(0)
        b, a, c = self.layouts
        self.library.call("MatmulAlgoGetHeuristic", self.handle, self.operation, b, a, c, c,
                          preference, 1, ctypes.byref(result), ctypes.byref(count))
        if count.value < 1 or result.state:
            raise DeviceError(f"cuBLASLt {self.library.version} has no algorithm for "
                              f"{p.m}x{p.k}x{p.n} of {p.dtypes[1]}")
        return result

    def enqueue(self, addresses: tuple[int, ...], queue: int, workspace: int = 0) -> None:
        """Submits the product to a stream, which may be capturing.

        Args:
            addresses: Of the buffers of a launch, in its order.
            queue: The stream.
            workspace: Is not used. Default: `0`.
        """
        p, (b, a, c) = self.product, self.layouts
        at_c, at_a, at_b = (addresses[place] + start for place, start in zip(
            p.places, p.starts, strict=True))
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        self.library.call("Matmul", self.handle, self.operation, ctypes.byref(one), at_b, b, at_a,
                          a, ctypes.byref(zero), at_c, c, at_c, c,
                          ctypes.byref(self.algorithm, _Heuristic.algorithm.offset), None, 0,
                          queue)

    def close(self) -> None:
        """Gives the descriptors back. A second call does nothing."""
        while self._objects:
            name, made = self._objects.pop()
            self.library.call(f"{name}Destroy", made)

    def _object(self, name: str, *args: Any) -> ctypes.c_void_p:
        made = self.library.created(name, *args)
        self._objects.append((name, made))
        return made

    def _set(self, name: str, made: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self.library.call(f"{name}SetAttribute", made, attribute, ctypes.byref(value),
                          ctypes.sizeof(value))
