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
    """What the module's template shows of a function: its kernels, and the pointers they take."""
    pointers: dict[tuple[str, int], int] = {}  # space and offset (or slot) -> number
    steps = []
    for step in plan.steps:
        kernel = kernels.rendered[kernels.number(step.kernel)]
        numbers = [pointers.setdefault((place.space, place.offset), len(pointers))
                   for place in step.locations]
        steps.append({"symbol": kernel["symbol"], "pointers": numbers, "barrier": step.barrier})
    return {"symbol": symbol, "steps": steps, "pointers": [
        {"id": number, "space": space, "offset": at,
         "slot": at if space in ("inputs", "outputs") else None}
        for (space, at), number in pointers.items()]}


def _file_name(name: str) -> str:
    """A name that is safe in files, whatever the user called the model."""
    return "zt_" + re.sub(r"[^A-Za-z0-9_]", "_", name)
