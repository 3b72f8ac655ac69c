"""Products by cuBLASLt and convolutions by cuDNN among the launches of a CUDA device."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any

from ztorch.abi import LIBRARY_CALL
from ztorch.backends import cuda_calls
from ztorch.backends.cublaslt import Cublaslt, LoadedProduct, cublaslt, product_call
from ztorch.backends.cudnn import Cudnn, cudnn
from ztorch.backends.cudnn_convolutions import (
    ConvolutionCall,
    LoadedConvolution,
    convolution_call,
)
from ztorch.backends.gpu import GpuDevice
from ztorch.backends.handles import DeviceModule, KernelEntry, Launch, LoadedCode
from ztorch.errors import DeviceError


class DeviceWithProducts(GpuDevice):
    """A device whose programs may have calls of NVIDIA's libraries in place of kernels."""

    # The libraries, with their handles here.
    _cublaslt: tuple[Cublaslt, ctypes.c_void_p] | None = None
    _cudnn: tuple[Cudnn, ctypes.c_void_p] | None = None

    def _load(self, code: bytes, entries: tuple[KernelEntry, ...]) -> Any:
        """The functions of kernels, and what is loaded for each call."""
        images = [code[e.at:e.at + e.size] for e in entries]
        calls = [image.startswith(LIBRARY_CALL) for image in images]
        kernels = super()._load(code, tuple(
            e for e, call in zip(entries, calls, strict=True) if not call))
        if not any(calls):
            return kernels
        rest, functions = iter(kernels.functions), []
        try:
            for image, call in zip(images, calls, strict=True):
                functions.append(self._load_call(image) if call else next(rest))
        except DeviceError:
            self._unload(LoadedCode(kernels.modules, functions))
            raise
        return LoadedCode(kernels.modules, functions, workspaces={}, calls=frozenset(
            k for k, call in enumerate(calls) if call))

    def _load_call(self, image: bytes) -> LoadedProduct | LoadedConvolution:
        """A product or convolution. The library's handle is created for the first one."""
        convolution = convolution_call(image)
        if convolution is not None:
            return self._load_convolution(convolution)
        library, product = cublaslt(), product_call(image)
        if library is None or product is None:
            raise DeviceError(f"{self.id}: cuBLASLt is not there; compile the program again")
        with self._current():
            if self._cublaslt is None:
                self._cublaslt = library, library.handle()
            return LoadedProduct(*self._cublaslt, product)

    def _load_convolution(self, convolution: ConvolutionCall) -> LoadedConvolution:
        library = cudnn()
        if library is None:
            raise DeviceError(f"{self.id}: cuDNN is not there; compile the program again")
        with self._current():
            if self._cudnn is None:
                self._cudnn = library, library.handle()
            return LoadedConvolution(*self._cudnn, convolution)

    def _unload(self, handle: Any) -> None:
        for function in handle.functions:
            if isinstance(function, (LoadedProduct, LoadedConvolution)):
                with self._current():
                    function.close()
        self._release("MemFree", *(handle.workspaces or {}).values())
        super()._unload(handle)

    def _close_products(self) -> None:
        """Gives the libraries' handles back."""
        for opened in (self._cublaslt, self._cudnn):
            if opened is not None and not self.lost:
                with self._current():
                    opened[0].call("Destroy", opened[1])

    def _workspace(self, loaded: LoadedCode, place: int) -> int:
        """Memory that is large enough for each call of a program. All graphs of a program run in
        the device's own stream, one after another, so they share it."""
        assert loaded.workspaces is not None, "code with calls"
        if place not in loaded.workspaces:
            loaded.workspaces[place] = self._alloc(max(
                loaded.functions[k].workspace for k in loaded.calls))
        return loaded.workspaces[place]

    def _call_node(self, graph: Any, before: list[Any], module: DeviceModule, launch: Launch,
                   place: int) -> Any:
        """Captures a call as a graph of its own. All threads go on calling the driver meanwhile:
        the library loads its kernel at the first call, which other modes do not allow."""
        call = self._function(module, launch.entry)
        addresses = tuple(int(b.buffer.handle) + b.at for b in launch.bindings)
        workspace = self._workspace(module.handle, place) if call.workspace else 0
        mode = cuda_calls.driver().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._call("StreamBeginCapture", self._queue, mode)
        try:
            call.enqueue(addresses, int(self._queue), workspace)
        except DeviceError:
            with suppress(DeviceError):  # the first error tells more
                self._call("GraphDestroy", self._call("StreamEndCapture", self._queue))
            raise
        inside = self._call("StreamEndCapture", self._queue)
        try:
            return self._call("GraphAddChildGraphNode", graph, before, len(before), inside)
        finally:
            self._call("GraphDestroy", inside)
