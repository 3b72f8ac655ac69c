"""Products by cuBLASLt among the launches of a CUDA device."""

from __future__ import annotations

import ctypes
from typing import Any

from ztorch.abi import LIBRARY_CALL
from ztorch.backends import cuda_calls
from ztorch.backends.cublaslt import Cublaslt, LoadedProduct, cublaslt, product_call
from ztorch.backends.gpu import GpuDevice
from ztorch.backends.handles import DeviceModule, KernelEntry, Launch, LoadedCode
from ztorch.errors import DeviceError


class DeviceWithProducts(GpuDevice):
    """A device whose programs may have products by cuBLASLt in place of kernels."""

    _cublaslt: tuple[Cublaslt, ctypes.c_void_p] | None = None  # the library, with its handle here

    def _load(self, code: bytes, entries: tuple[KernelEntry, ...]) -> Any:
        """The functions of kernels, and a `LoadedProduct` for each call."""
        images = [code[e.at:e.at + e.size] for e in entries]
        calls = [image.startswith(LIBRARY_CALL) for image in images]
        kernels = super()._load(code, tuple(
            e for e, call in zip(entries, calls, strict=True) if not call))
        if not any(calls):
            return kernels
        rest, functions = iter(kernels.functions), []
        try:
            for image, call in zip(images, calls, strict=True):
                functions.append(self._load_product(image) if call else next(rest))
        except DeviceError:
            self._unload(LoadedCode(kernels.modules, functions))
            raise
        return LoadedCode(kernels.modules, functions, calls=frozenset(
            k for k, call in enumerate(calls) if call))

    def _load_product(self, image: bytes) -> LoadedProduct:
        """A product. The library's handle is created for the first one."""
        library, product = cublaslt(), product_call(image)
        if library is None or product is None:
            raise DeviceError(f"{self.id}: cuBLASLt is not there; compile the program again")
        with self._current():
            if self._cublaslt is None:
                self._cublaslt = library, library.handle()
            return LoadedProduct(*self._cublaslt, product)

    def _unload(self, handle: Any) -> None:
        for function in handle.functions:
            if isinstance(function, LoadedProduct):
                function.close()
        super()._unload(handle)

    def _close_products(self) -> None:
        """Gives the library's handle back."""
        if self._cublaslt is not None and not self.lost:
            with self._current():
                self._cublaslt[0].call("Destroy", self._cublaslt[1])

    def _call_node(self, graph: Any, before: list[Any], module: DeviceModule,
                   launch: Launch) -> Any:
        """Captures a product as a graph of its own. All threads go on calling the driver meanwhile:
        the library loads its kernel at the first call, which other modes do not allow."""
        product = self._function(module, launch.entry)
        mode = cuda_calls.driver().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._call("StreamBeginCapture", self._queue, mode)
        try:
            product.enqueue(tuple(int(b.buffer.handle) + b.at for b in launch.bindings),
                            int(self._queue))
        finally:
            inside = self._call("StreamEndCapture", self._queue)
        try:
            return self._call("GraphAddChildGraphNode", graph, before, len(before), inside)
        finally:
            self._call("GraphDestroy", inside)
