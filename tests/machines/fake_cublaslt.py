"""cuBLASLt without a GPU: a library in C that checks every call, and multiplies in the memory of a pretended driver."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from tests.machines.compiled_c import library_of
from tests.machines.fake_cuda import FakeCuda
from ztorch.backends import cublaslt
from ztorch.dtypes import DType, bf16, f16, f32, from_storage, to_storage

TYPES = {0: f32, 2: f16, 14: bf16}


class Product(ctypes.Structure):
    """What the library in C tells of a product, with contiguous columns."""

    _fields_ = (*((n, ctypes.c_int64) for n in ("m", "n", "k")), ("type", ctypes.c_int), ("result", ctypes.c_int),
                ("compute", ctypes.c_int), ("transposed", ctypes.c_int * 2),
                *((n, ctypes.c_uint64) for n in ("a", "b", "d")), *((n, ctypes.c_int64) for n in ("lda", "ldb", "ldd")),
                ("stream", ctypes.c_uint64))


class FakeCublaslt:
    """The library, in place of NVIDIA's.

    Args:
        folder: Where it is compiled to.
        driver: The pretended driver.
        monkeypatch: Makes it the one that is found.
    """

    def __init__(self, folder: Path, driver: FakeCuda, monkeypatch: pytest.MonkeyPatch):
        path = folder / "libcublasLt.so"
        path.write_bytes(library_of(Path(__file__).with_name("pretended_cublaslt.c")))
        self.driver, self.library = driver, ctypes.CDLL(str(path))
        self.products: list[tuple[int, int, int, DType, int]] = []  # m, n, k, dtype and way of computing
        self._function = ctypes.CFUNCTYPE(None, ctypes.POINTER(Product))(self._multiply)
        self.library.pretended_multiply(self._function)
        monkeypatch.setattr(cublaslt, "_paths", lambda: iter([str(path)]))
        cublaslt.cublaslt.cache_clear()

    @property
    def live(self) -> int:
        """Objects that were not given back."""
        return int(self.library.pretended_live())

    def refuse(self, how: bool) -> None:
        self.library.pretended_refuses(int(how))

    def _multiply(self, pointer: object) -> None:
        """Submits the product to its stream."""
        p = Product.from_buffer_copy(pointer.contents)  # type: ignore[attr-defined]
        assert self.driver.stack, "without a context"
        of, into = TYPES[p.type], TYPES[p.result]
        self.products.append((p.m, p.n, p.k, of, p.compute))

        def places(rows: int, columns: int, pitch: int) -> np.ndarray:
            return np.arange(rows)[:, None] + np.arange(columns) * pitch

        def matrix(address: int, d: DType, rows: int, columns: int, pitch: int, transposed: bool) -> np.ndarray:
            lying = places(*((columns, rows) if transposed else (rows, columns)), pitch)
            data = self.driver.bytes_at(address, (int(lying.max()) + 1) * d.bytes).view(d.numpy)
            x = from_storage(d, data[lying]).astype(np.float64)
            return x.T if transposed else x

        def work() -> None:
            a = matrix(p.a, of, p.m, p.k, p.lda, bool(p.transposed[0]))
            b = matrix(p.b, of, p.k, p.n, p.ldb, bool(p.transposed[1]))
            at = places(p.m, p.n, p.ldd)
            self.driver.bytes_at(p.d, (int(at.max()) + 1) * into.bytes).view(into.numpy)[at] = to_storage(into, a @ b)
        self.driver.enqueue(p.stream, work)
