"""From plans to the code of a device with memory of its own: kernels, and lists of launches.

The counterpart of a CPU's library. Kernels that turn out the same are one entry; a function is the
list of its launches, each on parts of the inputs, outputs, params and arena.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ztorch.codegen.assemblers import assembled
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import Target
from ztorch.compile.watch import Watch
from ztorch.errors import Unsupported
from ztorch.ir.kernel import Kernel, launch_grid
from ztorch.ir.verify import verify
from ztorch.lower.passes import decompose, launched, vectored
from ztorch.lower.plan import KernelStep, Plan
from ztorch.runtime.spec import LaunchSpec, ProgramSpec, kernel_name

Entry = tuple[str, int, int, tuple[int, int, int]]


@dataclass
class DeviceCode:
    """The code, where each kernel lies in it, and the launches of each function."""

    text: str
    code: bytes
    entries: tuple[Entry, ...]
    launches: dict[str, tuple[LaunchSpec, ...]]

    def into(self, spec: ProgramSpec, target: Target) -> ProgramSpec:
        """The spec with what only rendering knows."""
        grid = target.limits.grid
        assert grid is not None
        needs = (("threads", max((w[0] * w[1] * w[2] for *_, w in self.entries), default=1)),
                 ("subgroup", grid.subgroup))
        functions = {n: f._replace(launches=self.launches[n]) for n, f in spec.functions.items()}
        return spec._replace(functions=functions, entries=self.entries, limits=needs)


class Kernels:
    """The kernels of a program as text, each once: verified, in the form that a worker or a thread
    runs, and in words that the target has."""

    def __init__(self, target: Target):
        self.target, self.words = target, renderer(target)
        self.rendered: list[dict[str, Any]] = []
        self._known: dict[tuple, int] = {}  # by their text
        self._seen: dict[int, tuple[int, Kernel]] = {}  # by the identity of their body

    def number(self, kernel: Kernel) -> int:
        """Which of `rendered` it is. Steps that are alike share one body."""
        if id(kernel.body) not in self._seen:
            self._seen[id(kernel.body)] = self._add(kernel), kernel
        return self._seen[id(kernel.body)][0]

    def _add(self, kernel: Kernel) -> int:
        verify(kernel)
        plain, size = launched(decompose(kernel, self.words.speaks, self.target.name))
        grid = self.target.limits.grid
        if grid is not None:
            plain = vectored(plain, grid.scalar_stores_readable_as_vectors)
        data = self.words.kernel(plain)
        held = (data[k] for k in ("memories", "locals", "shared"))
        key = (data["body"], data["workgroup"], size,
               *(tuple((m.t, m.access, m.size) for m in some) for some in held))
        if key not in self._known:
            self._known[key] = len(self.rendered)
            self.rendered.append({**data, "symbol": f"{kernel.name}_{len(self.rendered)}"})
        return self._known[key]


def device_code(plans: Mapping[str, Plan], target: Target, watch: Watch) -> DeviceCode:
    """All kernels of a program as code for a target, in its container."""
    kernels = Kernels(target)
    launches = {}
    for name, plan in plans.items():
        launches[name] = tuple(_launch(step, target, kernels) for step in plan.steps)
    for launch in {x.entry: x for some in launches.values() for x in some}.values():
        k = kernels.rendered[launch.entry]
        k["symbol"] = kernel_name(k["symbol"], k["workgroup"], launch.grid, launch.places)
    frame: dict[str, Any] = {"limits": target.limits.grid, "chip": target.chip,
                             **dict(target.frame_data)}
    groups = [[k] for k in kernels.rendered] if target.one_module_per_kernel else [kernels.rendered]
    texts = [kernels.words.frame(kernels=group, **frame) for group in groups]
    watch.done("text", "\n".join(texts))
    parts = [assembled(text, target) for text in texts]
    entries: list[Entry] = []
    at = 0
    for group, part in zip(groups, parts, strict=True):
        entries += [(k["symbol"], at, len(part), k["workgroup"]) for k in group]
        at += len(part)
    code = b"".join(parts)
    watch.done("code", code)
    return DeviceCode("\n".join(texts), code, tuple(entries), launches)


def _launch(step: KernelStep, target: Target, kernels: Kernels) -> LaunchSpec:
    within_limits(step, target)
    places = tuple((p.space, p.offset, p.size, w)
                   for p, w in zip(step.locations, step.writes, strict=True))
    return LaunchSpec(kernels.number(step.kernel), launch_grid(step.kernel), places, step.barrier)


def within_limits(step: KernelStep, target: Target) -> None:
    """A compile error that names the layer, not a driver's, where a kernel asks too much."""
    grid, kernel = target.limits.grid, step.kernel
    assert grid is not None
    shared = sum(m.size * m.dtype.bytes for m in kernel.memories if m.space == "shared")
    buffers = [m for m in kernel.memories if m.space == "global"]
    largest = max((m.size * m.dtype.bytes for m in buffers), default=0)
    held = any(p.space == "params" and m.size * m.dtype.bytes == largest
               for m, p in zip(buffers, step.locations, strict=True))
    layers = ", ".join(kernel.origin) or kernel.name
    smaller = ("make the layer smaller, or compile for another device, such as cpu" if held else
               "compile with a smaller batch_size")
    for what, has, may, way in (
        ("buffers", len(buffers), grid.max_buffers, "compile with fewer inputs to one layer"),
        ("bytes in one buffer", largest, grid.max_buffer_bytes, smaller),
        ("bytes of shared memory", shared, grid.shared_bytes, "use a smaller layer"),
    ):
        if has > may:
            raise Unsupported(f"layer {layers}: its kernel {kernel.name} needs {has:,} {what}, and "
                              f"{target.name} allows {may:,}; {way}")


