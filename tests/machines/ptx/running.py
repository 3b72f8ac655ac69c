"""Kernels of the IR through PTX: decomposed, rendered, parsed and run in NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tests.machines.ptx.machine import launch
from tests.machines.ptx.memory import GlobalMemory
from tests.machines.ptx.nvrtc import respelled
from tests.machines.ptx.parse import Program, parse
from tests.machines.ptx.tensor_maps import TensorMap
from ztorch.codegen import nvrtc
from ztorch.codegen.render import renderer, shared_offsets
from ztorch.codegen.targets import TARGETS
from ztorch.ir.kernel import Kernel
from ztorch.ir.tile_maps import tile_maps
from ztorch.ir.verify import verify
from ztorch.lower.passes import decompose, launched

STATIC = TARGETS["cuda:sm_80"].limits.grid.declared_shared_bytes
CHIPS = tuple(t.chip for t in TARGETS.values() if t.assembler == "ptx")


def spoken(kernel: Kernel, chip: str) -> Kernel:
    """The kernel in words that a chip has."""
    target = TARGETS[f"cuda:{chip}"]
    verify(kernel)
    return decompose(kernel, renderer(target).supports, target.name)


def rendered(kernels: Iterable[Kernel], chip: str) -> str:
    """One module of kernels that still have their grid and block loops; named k0, k1, ... With a chip such as
    c:sm_80 it goes through CUDA C++ and NVRTC."""
    target = TARGETS[f"cuda:{chip}"]
    words = renderer(target)
    parts = [{**words.kernel(launched(spoken(kernel, chip))[0]), "symbol": f"k{k}"}
             for k, kernel in enumerate(kernels)]
    text = words.frame(kernels=parts, chip=target.chip, limits=target.limits.grid, **dict(target.frame_data))
    return respelled(nvrtc.ptx_text(text, target)) if target.assembler == "nvrtc" else text


def run(kernel: Kernel, buffers: Mapping[str, np.ndarray], program: Program, name: str = "k0",
        races: bool = True) -> None:
    """One kernel on copies of its buffers in a GPU's memory, which then come back."""
    memory, pointers = GlobalMemory(), {}
    for m in kernel.memories:
        if m.space == "global":
            pointers[m.name] = memory.alloc(buffers[m.name].nbytes)
            held = memory.allocations[pointers[m.name]]
            held.data[:held.nbytes] = buffers[m.name].reshape(-1).view(np.uint8)
    _, shared = shared_offsets(kernel)
    sizes = {m.name: m.dtype.bytes for m in kernel.memories}
    maps = [TensorMap(pointers[m.memory] + m.first * sizes[m.memory], sizes[m.memory], m.extents,
                      tuple(p * sizes[m.memory] for p in m.pitches[1:]), m.box) for m in tile_maps(kernel)]
    launch(program.entries[name], launched(kernel)[1], list(pointers.values()), memory, races,
           shared if shared > STATIC else 0, maps)
    for name, at in pointers.items():
        held = memory.allocations[at]
        buffers[name].reshape(-1).view(np.uint8)[:] = held.data[:held.nbytes]


def through_ptx(kernel: Kernel, buffers: Mapping[str, np.ndarray], chip: str = "sm_80",
                races: bool = True) -> None:
    """A kernel rendered for a chip and run, in place."""
    run(kernel, buffers, parse(rendered([kernel], chip)), races=races)
