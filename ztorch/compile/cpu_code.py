"""From plans to the code of a processor: text, object file, and one library for the program.

A function of the program becomes one native function, which runs its kernels in order. All worker
threads call it; each does its share of every kernel, and they meet at the barriers of the plan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ztorch.abi import CONTROL_FIELDS, CONTROL_OFFSETS, WORKER_ENTRY
from ztorch.artifact.c_interface import CInterface
from ztorch.codegen.assemblers import assembled
from ztorch.codegen.elf import link
from ztorch.codegen.targets import Target
from ztorch.compile.kernels import Kernels
from ztorch.compile.watch import Watch
from ztorch.lower.placement import Location
from ztorch.lower.plan import Plan
from ztorch.runtime.spec import ProgramSpec


@dataclass(frozen=True)
class CpuCode:
    """A program for a processor."""

    text: str  # the module in the target's language
    code: bytes  # the shared library


def cpu_code(plans: Mapping[str, Plan], target: Target, spec: ProgramSpec,
             watch: Watch) -> CpuCode:
    """Renders, assembles and links a program."""
    symbols = {name: function.symbol for name, function in spec.functions.items()}
    text = render_module(plans, target, symbols)
    watch.done("text", text)
    object_file = assembled(text, target)
    watch.done("object", object_file)
    library = link(object_file, soname=f"{_file_name(spec.name)}.so",
                   exports=[*symbols.values(), WORKER_ENTRY])
    watch.done("library", library)
    return CpuCode(text, library)


def render_module(plans: Mapping[str, Plan], target: Target, symbols: Mapping[str, str],
                  c_interface: CInterface | None = None) -> str:
    """All functions as one module of text.

    Args:
        plans: The plan of each function.
        target: The machine to render for.
        symbols: The symbol of each function, by its name.
        c_interface: Adds the wrappers that C programs call, in place of worker threads. Default:
            `None`.
    """
    kernels = Kernels(target)
    functions = [_function(plan, kernels, symbols[plan.name]) for plan in plans.values()]
    return kernels.words.frame(
        kernels=kernels.rendered, programs=functions, c=c_interface, arch=target.arch,
        triple=target.llvm_triple, cpu=target.llvm_cpu, vector_bits=target.limits.vector_bits,
        features=",".join(f"+{feature}" for feature in target.llvm_features),
        control_fields=CONTROL_FIELDS, offset_of=CONTROL_OFFSETS, **dict(target.frame_data))


def _function(plan: Plan, kernels: Kernels, symbol: str) -> dict[str, Any]:
    """What the module's template shows of a function: its kernels, the pointers they take, and the
    loops around them.

    A pointer is computed once a turn of the innermost loop that moves it.
    """
    pointers: dict[tuple[Pointer, tuple[int, ...]], int] = {}  # by the loops that move them
    loops: list[dict[str, Any]] = [{"id": n, "turns": loop.turns, "pointers": [], "proceed": None}
             for n, loop in enumerate(plan.loops)]
    fixed: list[dict[str, Any]] = []  # pointers that no loop moves

    def number_of(place: Location, around: list[int]) -> int:
        space, offset, strides = pointer_of(place)
        key = (space, offset, strides), tuple(around[:len(strides)])
        if key not in pointers:
            pointers[key] = len(pointers)
            moves = [{"loop": around[k], "bytes": stride} for k, stride in enumerate(strides)
                     if stride]
            pointer = {"id": pointers[key], "space": space, "offset": offset, "moves": moves,
                       "slot": offset if space in ("inputs", "outputs") else None}
            (loops[around[len(strides) - 1]]["pointers"] if strides else fixed).append(pointer)
        return pointers[key]

    steps: list[dict[str, Any]] = []
    open_loops: list[int] = []
    for k, step in enumerate(plan.steps):
        for n, loop in enumerate(plan.loops):
            if loop.first == k:
                if loop.proceed is not None:
                    loops[n]["proceed"] = number_of(loop.proceed, open_loops)
                open_loops.append(n)
                steps.append({"kind": "begin", "loop": loops[n]})
        kernel = kernels.rendered[kernels.number(step.kernel)]
        numbers = [number_of(place, open_loops) for place in step.locations]
        steps.append({"kind": "call", "symbol": kernel["symbol"], "pointers": numbers,
                      "barrier": step.barrier})
        while open_loops and plan.loops[open_loops[-1]].end == k + 1:
            steps.append({"kind": "end", "loop": loops[open_loops.pop()]})
    return {"symbol": symbol, "steps": steps, "pointers": fixed, "loops": loops}


Pointer = tuple[str, int, tuple[int, ...]]  # space, offset (or slot), strides


def pointer_of(place: Location) -> Pointer:
    """What tells one pointer from another. Strides end with the innermost loop that moves it.

    >>> pointer_of(Location("arena", 64, 4, strides=(8, 0)))
    ('arena', 64, (8,))
    """
    strides = place.strides
    while strides and not strides[-1]:
        strides = strides[:-1]
    return place.space, place.offset, strides


def _file_name(name: str) -> str:
    """A name that is safe in files, whatever the user called the model."""
    return "zt_" + re.sub(r"[^A-Za-z0-9_]", "_", name)
