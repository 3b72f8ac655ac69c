"""Custom kernels, in the language of the device."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ztorch.backends import registry
from ztorch.backends.handles import Binding, DeviceModule, KernelEntry, Launch, wrong_count
from ztorch.backends.library import entry, load_library
from ztorch.backends.streams import Stream
from ztorch.codegen.assemblers import assemble_text
from ztorch.codegen.elf.link import link
from ztorch.codegen.targets import target
from ztorch.codegen.templates import c_module
from ztorch.errors import ConfigError, DeviceError, Unsupported, ZtorchError, unknown
from ztorch.library.buffers import Buffer, BufferPart, Strided, whole_numbers
from ztorch.library.memory import DeviceStore
from ztorch.library.raw_device import RawDevice
from ztorch.library.signatures import buffer_count

MAX_PREPARED = 256  # launches that a module keeps prepared, the least recent go first
SPIRV_MAGIC = 0x07230203  # the first word of a SPIR-V module

Grid = tuple[int, int, int]
Argument = Buffer | BufferPart | Strided


class Code(NamedTuple):
    """Kernels that were loaded, as `load` gives them.

    Attributes:
        device: Name of the device.
        language: The language of the source.
        kernels: The workgroup of each, by name.
        memories: How many buffers each takes; None where only the driver knows.
        handle: The driver's module, or the library of the CPU.
        prepared: Launches that may be run again.
    """

    device: str
    language: str
    kernels: dict[str, Grid]
    memories: dict[str, int | None]
    handle: Any
    prepared: OrderedDict[Any, Any]


class CustomKernels(RawDevice):
    """Loading and launching custom kernels."""

    def load(self, code: str | bytes, kernels: Mapping[str, Sequence[int]] | Sequence[str],
             language: str | None = None) -> Code:
        """Loads kernels.

        Every kernel takes buffers and nothing else: numbers go in a buffer, too. In C a kernel is
        a function of the buffers' addresses and of the three sizes of the grid, all `long`, which
        is called once; it may call no library.

        Args:
            code: Text, or the bytes of a module.
            kernels: The name of each kernel, with the threads of its workgroup; names alone in C.
            language: "c" on the CPU, "ptx" on CUDA, "hip" on ROCm, "spirv" on Vulkan, "opencl" or
                "spirv" on OpenCL, "wgsl" on WebGPU, "msl" on Metal. `None` means the language of
                the device; SPIR-V is recognized by its first bytes. Default: `None`.

        Returns:
            The code, for `launch`.

        Raises:
            Unsupported: The device does not take this language.
            DeviceError: The driver refuses the code.
            LinkError: Text in C lacks a kernel, or calls a library.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu, x = zt.backends.get("cpu"), np.arange(4.0)
            >>> text = "void twice(double *x, long n, long ny, long nz) {"
            >>> text += " for (long i = 0; i < n; i++) x[i] *= 2; }"
            >>> code = cpu.load(text, ["twice"])     # doctest: +SKIP
            >>> cpu.launch(code, "twice", [cpu.wrap(x)], grid=(4, 1, 1))     # doctest: +SKIP
        """
        store = self._store
        backend = self._memory_name.partition(":")[0]
        known = registry.languages(backend)
        kernels = [kernels] if isinstance(kernels, str) else kernels
        if not isinstance(code, (str, bytes, bytearray)):
            raise ConfigError(f"load takes text or bytes, not {type(code).__name__}")
        data = code.encode() if isinstance(code, str) else bytes(code)
        is_spirv = data[:4] == SPIRV_MAGIC.to_bytes(4, "little")
        language = language or ("spirv" if is_spirv else known[0] if known else backend)
        if known and language not in known:
            raise Unsupported(f"backend {self.name} takes kernels in {' or '.join(known)}, not in "
                              f"{language}")
        groups = {name: _sizes("workgroup", kernels[name] if isinstance(kernels, Mapping) else ())
                  for name in kernels}
        if not groups:
            raise ConfigError("load takes the name of at least one kernel")
        memories = {name: buffer_count(language, data.decode(errors="replace"), name)
                    for name in groups}
        if isinstance(store, DeviceStore):
            module = store.device.load(data, [KernelEntry(name, 0, len(data), group)
                                              for name, group in groups.items()])
            return Code(self.name, language, groups, memories, module, OrderedDict())
        if not data.isascii():
            raise ConfigError("C text must be ASCII")
        try:
            compiled = assemble_text(c_module(data.decode()), target("c"))
        except ZtorchError as error:
            raise DeviceError(f"{self.name} does not take this code: {error}") from None
        library = load_library(link(compiled, soname="own.so", exports=[*groups]), "own")
        return Code(self.name, language, groups, memories, library, OrderedDict())

    def unload(self, code: Code) -> None:
        """Unloads kernels; on the CPU their code goes with the last reference to `code`.

        Args:
            code: The result of `load`.
        """
        store = self._store
        self._need_own(code)
        code.prepared.clear()
        code.kernels.clear()
        if isinstance(store, DeviceStore):
            store.device.unload(code.handle)

    def launch(self, code: Code, kernel: str, buffers: Sequence[Argument],
               grid: Sequence[int] = (1, 1, 1), stream: Stream | None = None) -> None:
        """Runs a kernel on buffers. It may return before the kernel is done.

        The launch is prepared once, and replayed when it comes again with the same buffers.

        Args:
            code: The result of `load`.
            kernel: The kernel's name.
            buffers: Its arguments in order: buffers, parts or tensors of them. A part begins at a
                multiple of `capabilities().limits["buffer_align"]` bytes, where there is one.
            grid: Workgroups along up to three axes; in C, an argument of the function. With a size
                of zero nothing happens. Default: `(1, 1, 1)`.
            stream: The stream to run it in; `None` means after all that was submitted before.
                Default: `None`.
        """
        store = self._store
        self._need_own(code)
        if kernel not in code.kernels:
            raise unknown("kernel", kernel, code.kernels)
        device = store.device if isinstance(store, DeviceStore) else store
        if stream is not None and getattr(stream, "device", None) is not device:
            raise DeviceError(f"{self.name}: {stream!r} is not a stream of this object")
        count = code.memories[kernel]
        if count is not None and count != len(buffers):
            raise DeviceError(wrong_count(self.name, kernel, count, len(buffers)))
        parts = [self._part(b.part if isinstance(b, Strided) else b, 0) for b in buffers]
        sizes = _sizes("grid", grid, least=0)
        if 0 in sizes:
            return
        key = kernel, sizes, tuple((id(p.buffer.handle), p.offset) for p in parts)
        align = dict(store.device.info.limits).get("buffer_align", 1) if isinstance(
            store, DeviceStore) else 1
        for k, p in enumerate(parts):
            if p.offset % align:
                raise DeviceError(f"{self.name}: argument {k} of {kernel} begins at byte "
                                  f"{p.offset} of its buffer, and must at a multiple of {align}: "
                                  "capabilities().limits['buffer_align'], which the driver says")
        with self._guard:
            launch: Any = code.prepared.get(key)
            if isinstance(store, DeviceStore):
                if launch is None or not launch.live:
                    launch = self._recorded(store, code.handle, [*code.kernels].index(kernel),
                                            sizes, parts)
            elif launch is None:
                launch = self._call(code.handle, kernel, sizes, parts)
            code.prepared[key] = launch
            code.prepared.move_to_end(key)
            while len(code.prepared) > MAX_PREPARED:
                _, oldest = code.prepared.popitem(last=False)
                if isinstance(store, DeviceStore) and oldest.live:
                    store.device.drop(oldest)
        (stream or store).run(launch)

    def _need_own(self, code: Code) -> None:
        if not isinstance(code, Code):
            raise ConfigError(f"{self.name}: {code!r} is not code that load gave")
        if code.device != self.name:
            raise DeviceError(f"{self.name}: this code was loaded on {code.device}")
        if not code.kernels:
            raise DeviceError(f"{self.name}: this code was unloaded")

    def _recorded(self, store: DeviceStore, module: DeviceModule, number: int, grid: Grid,
                  parts: Sequence[BufferPart]) -> Any:
        bindings = tuple(Binding(p.buffer.handle, p.offset, p.nbytes, True) for p in parts)
        return store.device.record(module, [Launch(number, grid, bindings)])

    def _call(self, library: Any, kernel: str, grid: Grid,
              parts: Sequence[BufferPart]) -> Callable[[], None]:
        """The call of a C function; it keeps the memory that it works on."""
        held = [p.buffer.handle for p in parts]
        addresses = [a.__array_interface__["data"][0] + p.offset
                     for a, p in zip(held, parts, strict=True)]
        return functools.partial(_run, entry(library, kernel, len(parts)), (*addresses, *grid),
                                 held)


def _run(function: Callable[..., None], arguments: tuple[int, ...], held: Any) -> None:
    function(*arguments)


def _sizes(label: str, sizes: int | Sequence[int], least: int = 1) -> Grid:
    """Up to three sizes, with 1 for those that are not given."""
    numbers = whole_numbers(f"a {label}", (sizes,) if isinstance(sizes, int) else sizes)
    if len(numbers) > 3 or any(n < least for n in numbers):
        raise ConfigError(f"a {label} has up to three sizes of {least} or more, not {sizes!r}")
    x, y, z = (*numbers, 1, 1, 1)[:3]
    return x, y, z
