"""From plans to processor code: text, object file, and one library for the program.

A function of the program becomes one native function, which runs its kernels in order. All worker
threads call it; each computes its part of every kernel, and they synchronize at the barriers of the
plan.

For some targets, each kernel has its own object, and so have the functions and the code of the
workers. The cache stores them by their text: if one layer of a model changed, only that layer's
kernels are assembled. Kernels that the cache lacks are assembled together, and their module is
split (`codegen/elf/split.py`).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ztorch.abi import (
    CONNECT,
    CONTROL_FIELDS,
    CONTROL_OFFSETS,
    FOREIGN_FUNCTIONS,
    LIBRARY_CALLS,
    STEPS,
    STEPS_ENTRY,
    WORKER_ENTRY,
    repeats,
)
from ztorch.artifact.c_interface import CInterface
from ztorch.codegen.assemble import KERNEL, assemble_kernels
from ztorch.codegen.assemblers import assemble_text
from ztorch.codegen.elf.contents import Blob
from ztorch.codegen.elf.link import link
from ztorch.codegen.elf.merge import merge
from ztorch.codegen.elf.object import Object, read_object
from ztorch.codegen.targets import Target
from ztorch.compile.kernels import Kernels
from ztorch.compile.watch import Watch
from ztorch.lower.locations import SLOTS, Location
from ztorch.lower.plan import Plan
from ztorch.runtime.spec import ProgramSpec
from ztorch.terminal.work_line import at

# Params from which on LLVM runs in a child process, which takes some 0.1 s to start. Here it would
# leave 80 to 100 MB beside them for good.
LARGE_PARAMS = 1 << 28  # bytes


@dataclass(frozen=True)
class CpuCode:
    """A program for a processor."""

    text: str  # the module in the target's language
    code: bytes  # the shared library


def cpu_code(plans: Mapping[str, Plan], target: Target, spec: ProgramSpec,
             watch: Watch) -> CpuCode:
    """Renders, assembles and links a program."""
    symbols = {name: function.symbol for name, function in spec.functions.items()}
    if spec.params_bytes >= LARGE_PARAMS:
        target = replace(target, llvm_in_child=True)
    module = RenderedModule(plans, target, symbols)
    text = module.text()
    watch.done("text", text)
    if target.linked_by_assembler:
        at("assemble")
        return CpuCode(text, assemble_text(text, target))
    objects = module.assemble()
    watch.done("object", objects)
    table = Blob(None, 8 * len(FOREIGN_FUNCTIONS), writable=True)
    address = Blob(None, 8, writable=True)
    library = link(objects, soname=f"{_file_name(spec.name)}.so", exports=[
        *symbols.values(), *module.repeated, WORKER_ENTRY, *module.connecting],
        blobs={"zt.foreign": table, **{f"zt.call.{call}": address for call in module.calls}})
    watch.done("library", library)
    return CpuCode(text, library)


class RenderedModule:
    """The functions of a program, rendered.

    Args:
        plans: The plan of each function.
        target: The machine to render for.
        symbols: The symbol of each function, by its name.
        c_interface: Adds the wrappers that C programs call, instead of worker threads. Default:
            `None`.
    """

    def __init__(self, plans: Mapping[str, Plan], target: Target, symbols: Mapping[str, str],
                 c_interface: CInterface | None = None):
        self.target, self.c_interface = target, c_interface
        self.kernels = Kernels(target)
        self.functions = [_function(plan, self.kernels, symbols[plan.name])
                          for plan in plans.values()]
        self.repeated = [f["repeats"] for f in self.functions if f["repeats"]]
        self.calls_libraries = any("foreign" in k["above"] for k in self.kernels.rendered)
        # What libraries must prepare, by the names of calls.
        self.calls = {call: text for k in self.kernels.rendered
                      for call, text in k["calls"].items()}

    def text(self) -> str:
        """The whole module as one text."""
        return self._frame(kernels=self.kernels.rendered, programs=self.functions,
                           workers="defined" if self.c_interface is None else "",
                           steps=self._steps, connects=self._connect)

    def assemble(self) -> Object:
        """The whole module as one object: assembled at once, or in parts that are merged."""
        if not self.target.one_module_per_kernel or self.c_interface is not None:
            at("assemble")
            return read_object(assemble_text(self.text(), self.target))
        # Functions only call kernels: LLVM's slow passes do not help them.
        plain = replace(self.target, llvm_opt_level=0)
        rest = ((self._frame(declared=self.kernels.rendered, programs=self.functions,
                             workers="declared", steps=self._steps,
                             connects=self._connect), plain),
                (self._frame(workers="defined", linkage="hidden", steps=self._steps), self.target))
        kernels = [(read_object(code), {KERNEL: kernel["symbol"]}) for kernel, code in
                   zip(self.kernels.rendered, self._assembled_kernels(), strict=True)]
        at("assemble functions")
        return merge([*kernels, *((read_object(assemble_text(*part)), {}) for part in rest)])

    def _assembled_kernels(self) -> list[bytes]:
        """The object file of each kernel."""
        kernels = self.kernels.rendered

        def module(named: Mapping[str, int]) -> str:
            return self._frame(kernels=[{**kernels[number], "symbol": name}
                                        for name, number in named.items()], linkage="hidden")

        return assemble_kernels(
            [module({KERNEL: number}) for number in range(len(kernels))], self.target,
            lambda numbers: module({f"{KERNEL}{k}": n for k, n in enumerate(numbers)}))

    @property
    def connecting(self) -> list[str]:
        """The symbols by which the program gets functions of other libraries."""
        return [CONNECT] * self.calls_libraries + [LIBRARY_CALLS] * bool(self.calls)

    @property
    def _connect(self) -> str:
        """The symbol of the function that takes addresses of other libraries; empty: none."""
        return CONNECT if self.calls_libraries else ""

    @property
    def _steps(self) -> Mapping[str, Any] | None:
        """The loop over batches, in the form that the template expects; None if no function has
        one."""
        return STEPS if self.repeated else None

    def _frame(self, **parts: Any) -> str:
        target = self.target
        data = {"kernels": [], "declared": [], "programs": [], "workers": "",
                "steps": None, "linkage": "internal", "connects": "", **parts}
        calls = self.calls if data["connects"] else dict.fromkeys(
            call for k in data["kernels"] for call in k["calls"])
        data |= {"calls": list(calls), "described_calls": LIBRARY_CALLS,
                 "call_text": f"{{{', '.join(f'{json.dumps(n)}: {t}' for n, t in calls.items())}}}"
                 if data["connects"] else ""}
        return self.kernels.words.frame(
            **data, c=self.c_interface, arch=target.arch, triple=target.llvm_triple,
            cpu=target.llvm_cpu, vector_bits=target.limits.vector_bits,
            features=",".join(f"+{feature}" for feature in target.llvm_features),
            control_fields=CONTROL_FIELDS, offset_of=CONTROL_OFFSETS, **dict(target.frame_data))


def _function(plan: Plan, kernels: Kernels, symbol: str) -> dict[str, Any]:
    """A function, in the form that the module's template expects: its kernels, the pointers they
    take, and the loops around them.

    A moving pointer is computed once per iteration of the innermost loop that moves it. Others are
    computed where a kernel takes them: one addition is cheaper than a register for a whole step.
    """
    ids = itertools.count()  # of pointers
    moving: dict[tuple[Pointer, tuple[int, ...]], int] = {}  # by the loops that move them
    loops: list[dict[str, Any]] = [
        {"id": n, "trip_count": loop.trip_count, "pointers": [], "proceed": None,
         "lone": loop.lone}
        for n, loop in enumerate(plan.loops)]
    begins: dict[int, list[int]] = {}  # numbers of loops, by their first step
    for n, loop in enumerate(plan.loops):
        begins.setdefault(loop.first, []).append(n)

    def pointer(place: Location, around: list[int], fixed: list[dict[str, Any]]) -> int:
        """The number of a pointer, which is added to those of its loop or to `fixed`."""
        space, slot, offset, strides = pointer_of(place)
        key = (space, slot, offset, strides), tuple(around[:len(strides)])
        if strides and key in moving:
            return moving[key]
        number = next(ids)
        moves = [{"loop": around[k], "bytes": stride} for k, stride in enumerate(strides) if stride]
        data = {"id": number, "space": space, "slot": slot, "offset": offset, "moves": moves}
        if strides:
            moving[key] = number
        (loops[around[len(strides) - 1]]["pointers"] if strides else fixed).append(data)
        return number

    steps: list[dict[str, Any]] = []
    open_loops: list[int] = []
    for k, step in enumerate(plan.steps):
        for n in begins.get(k, ()):
            fixed: list[dict[str, Any]] = []
            proceed = plan.loops[n].proceed
            if proceed is not None:
                loops[n]["proceed"] = pointer(proceed, open_loops, fixed)
            open_loops.append(n)
            steps.append({"kind": "begin", "loop": loops[n], "fixed": fixed,
                          "lone": any(loops[n]["lone"] for n in open_loops)})
        kernel = kernels.rendered[kernels.number(step.kernel)]
        fixed = []
        numbers = [pointer(place, open_loops, fixed) for place in step.locations]
        steps.append({"kind": "call", "symbol": kernel["symbol"], "pointers": numbers,
                      "fixed": fixed, "barrier": step.barrier, "skipped": step.skipped,
                      "lone": any(loops[n]["lone"] for n in open_loops)})
        while open_loops and plan.loops[open_loops[-1]].end == k + 1:
            steps.append({"kind": "end", "loop": loops[open_loops.pop()], "fixed": []})
    return {"symbol": symbol, "steps": steps, "loops": loops, "flushes": _flushes(plan),
            "lone": any(loop.lone for loop in plan.loops), "apart": plan.apart,
            "repeats": STEPS_ENTRY.format(symbol) if repeats(plan.name) else ""}


def _flushes(plan: Plan) -> bool:
    """Whether a function flushes subnormal numbers to zero. Functions with loops do: values that
    decay from iteration to iteration, such as gradients along a sequence, would often become
    subnormal, and processors take a hundred times as long for such numbers."""
    return bool(plan.loops) or any(step.schedule is not None and step.schedule.kind == "recurrence"
                                   for step in plan.steps)


Pointer = tuple[str, int | None, int, tuple[int, ...]]  # space, slot, offset in bytes, strides


def pointer_of(place: Location) -> Pointer:
    """The identity of a pointer. Strides end with the innermost loop that moves it.

    >>> pointer_of(Location("arena", 64, 4, strides=(8, 0)))
    ('arena', None, 64, (8,))
    """
    strides = place.strides
    while strides and not strides[-1]:
        strides = strides[:-1]
    if place.space in SLOTS:
        return place.space, place.offset, place.start, strides
    return place.space, None, place.offset, strides


def _file_name(name: str) -> str:
    """A name that is valid in file names, whatever the model is called."""
    return "zt_" + re.sub(r"[^A-Za-z0-9_]", "_", name)
