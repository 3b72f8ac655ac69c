"""Graphs that are planned for AMD's chips, and their code objects."""

from __future__ import annotations

import functools

import pytest

from tests.machines.rocm.machine import rendered
from tests.parity import plan_of
from ztorch import ops
from ztorch.codegen import assemble
from ztorch.codegen.elf.amdgcn import link
from ztorch.codegen.targets import TARGETS, Target
from ztorch.dtypes import DType, bf16, f16, f32, f64
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.kernel import Kernel

CHIPS = tuple(t.chip for t in TARGETS.values() if t.assembler == "amdgcn")
FAST = ("gfx942", "gfx1100")
every = pytest.mark.parametrize("chip", CHIPS)


def target(chip: str) -> Target:
    return TARGETS[f"rocm:{chip}"]


def input_value(name: str, *shape: int, d: DType = f32) -> Value:
    return leaf("input", name, shape, d)


def graphs() -> dict[str, Graph]:
    """Typical kernels; sizes are odd, or large enough for the largest tile."""
    x, w = input_value("x", 4096, 4096), input_value("w", 4096, 4096)
    narrow, low, bias = input_value("a", 33, 217), input_value("b", 217, 75), input_value("c", 75)
    rows, aligned = input_value("r", 128, 1003), input_value("s", 4096, 1024)
    return {
        "product": Graph({"y": ops.matmul(x, w)}),
        "product with an epilogue": Graph({"y": ops.relu(ops.matmul(x, w) + input_value("v", 4096))}),
        "product transposed": Graph({"y": ops.matmul(ops.transpose(x), w)}),
        **{f"product of {d!r}": Graph({"y": ops.matmul(input_value("g", 4096, 4096, d=d),
                                                       input_value("h", 4096, 4096, d=d))})
           for d in (f16, bf16, f64)},
        "small product with an epilogue": Graph({"y": ops.relu(ops.matmul(narrow, low) + bias)}),
        "row softmax": Graph({"y": ops.softmax(rows)}),
        "row softmax of vectors": Graph({"y": ops.softmax(aligned)}),
        "column sum": Graph({"y": ops.sum(rows, axis=0)}),
        "column sum of vectors": Graph({"y": ops.sum(aligned, axis=0)}),
        "elementwise gelu": Graph({"y": ops.gelu(rows)}),
    }


def planned(chip: str) -> dict[str, list[Kernel]]:
    return {name: [step.kernel for step in plan_of(graph, target(chip).limits)[0].steps]
            for name, graph in graphs().items()}


@functools.cache
def made(chip: str) -> tuple[bytes, bytes, tuple[tuple[str, Kernel], ...]]:
    """The object and the code object of all of them, and each kernel by its symbol."""
    every = [k for some in planned(chip).values() for k in some]
    text, result = rendered(every, target(chip))
    obj = assemble.assemble(text, target(chip))
    return obj, link(obj), tuple((symbol, k) for (symbol, *_), k in zip(result, every, strict=True))
