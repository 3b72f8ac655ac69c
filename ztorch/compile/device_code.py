"""From plans to the code of a device with separate memory: kernels, and lists of launches.

A function of the program becomes the list of its launches. Each launch names a kernel, a grid, and
the parts of inputs, outputs, parameters and arena that the kernel accesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ztorch.codegen.assemblers import assemble_all
from ztorch.codegen.targets import Target
from ztorch.compile.kernels import Kernels
from ztorch.compile.library_calls import call_code, is_call
from ztorch.compile.watch import Watch
from ztorch.errors import Unsupported
from ztorch.ir.kernel import launch_grid
from ztorch.lower.plan import KernelStep, Plan
from ztorch.runtime.spec import LaunchSpec, ProgramSpec, kernel_name
from ztorch.terminal.work_line import counted

Entry = tuple[str, int, int, tuple[int, int, int]]  # symbol, offset and size in code, workgroup


@dataclass(frozen=True)
class DeviceCode:
    """A program for a device."""

    text: str  # all modules in the target's language
    code: bytes  # the modules in the driver's form, one after another
    entries: tuple[Entry, ...]  # the location of each kernel
    launches: dict[str, tuple[LaunchSpec, ...]]  # of each function, in order
    shared: tuple[tuple[int, int], ...]  # bytes requested by launches of some kernels, by number
    maps: tuple[tuple, ...]  # tensor maps of some kernels, each after the kernel's number

    def complete(self, spec: ProgramSpec, target: Target) -> ProgramSpec:
        """The description of the program, completed with its kernels, launches and requirements."""
        grid = target.limits.grid
        assert grid is not None
        threads = max((x * y * z for *_, (x, y, z) in self.entries), default=1)
        functions = {name: function.replace(launches=self.launches[name])
                     for name, function in spec.functions.items()}
        return spec.replace(functions=functions, entries=self.entries, shared=self.shared,
                            maps=self.maps,
                            limits=(("threads", threads), ("subgroup", grid.subgroup)))


def device_code(plans: Mapping[str, Plan], target: Target, watch: Watch) -> DeviceCode:
    """Renders and assembles all kernels of a program, and lists the launches of each function."""
    kernels = Kernels(target)
    launches = {name: tuple(_launch(step, target, kernels) for step in plan.steps)
                for name, plan in plans.items()}
    _name_kernels(kernels, launches)
    calls = [kernel for kernel in kernels.rendered if is_call(kernel)]
    rest = [kernel for kernel in kernels.rendered if not is_call(kernel)]
    modules = [[kernel] for kernel in rest] if target.one_module_per_kernel else [rest]
    texts = [kernels.module(module) for module in modules]
    watch.done("text", "\n".join(texts))
    binaries = [binary for _, binary in zip(counted("assemble kernels", texts),
                                            assemble_all(texts, target), strict=True)]
    modules += [[kernel] for kernel in calls]
    binaries += map(call_code, calls)
    offset = 0
    placed: dict[str, Entry] = {}
    for module, binary in zip(modules, binaries, strict=True):
        placed |= {k["symbol"]: (k["symbol"], offset, len(binary), k["workgroup"]) for k in module}
        offset += len(binary)
    entries = tuple(placed[k["symbol"]] for k in kernels.rendered)
    code = b"".join(binaries)
    watch.done("code", code)
    shared = tuple((k, kernel["dynamic_shared"]) for k, kernel in enumerate(kernels.rendered)
                   if kernel["dynamic_shared"])
    maps = tuple((k, *m) for k, kernel in enumerate(kernels.rendered) for m in kernel["maps"])
    return DeviceCode("\n".join(texts), code, entries, launches, shared, maps)


def _name_kernels(kernels: Kernels, launches: Mapping[str, tuple[LaunchSpec, ...]]) -> None:
    """Gives each kernel the symbol by which the runtime checks that code and launches match."""
    last_launch = {launch.entry: launch for function in launches.values() for launch in function}
    for launch in last_launch.values():
        kernel: dict[str, Any] = kernels.rendered[launch.entry]
        kernel["symbol"] = kernel_name(kernel["symbol"], kernel["workgroup"], launch.grid,
                                       launch.places)


def _launch(step: KernelStep, target: Target, kernels: Kernels) -> LaunchSpec:
    within_limits(step, target)
    places = tuple((place.space, place.offset, place.size, writes)
                   for place, writes in zip(step.locations, step.writes, strict=True))
    return LaunchSpec(kernels.number(step.kernel), launch_grid(step.kernel), places, step.barrier)


def within_limits(step: KernelStep, target: Target) -> None:
    """Raises Unsupported, naming the layer, if a kernel needs more than the device allows: the
    driver's error would name neither."""
    grid, kernel = target.limits.grid, step.kernel
    assert grid is not None
    shared_bytes = sum(m.size * m.dtype.bytes for m in kernel.memories if m.space == "shared")
    buffers = [m for m in kernel.memories if m.space == "global"]
    largest = max((m.size * m.dtype.bytes for m in buffers), default=0)
    most = max((m.size for m in buffers), default=0)
    largest_is_weight = any(p.space == "params" and m.size * m.dtype.bytes == largest
                            for m, p in zip(buffers, step.locations, strict=True))
    smaller = ("make the layer smaller, or compile for another device, such as cpu"
               if largest_is_weight else "compile with a smaller batch_size")
    layers = ", ".join(kernel.origin) or kernel.name
    for resource, needed, allowed, fix in (
        ("buffers", len(buffers), grid.max_buffers, "compile with fewer inputs to one layer"),
        ("bytes in one buffer", largest, grid.max_buffer_bytes, smaller),
        ("elements in one buffer", most, grid.max_buffer_elements, smaller),
        ("bytes of shared memory", shared_bytes, grid.shared_bytes, "use a smaller layer"),
    ):
        if needed > allowed:
            raise Unsupported(f"layer {layers}: kernel {kernel.name} needs {needed:,} "
                              f"{resource}, but {target.name} allows {allowed:,}; {fix}")
