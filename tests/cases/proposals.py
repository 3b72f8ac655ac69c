"""Schedules that the rules of lowering propose for a value."""

from __future__ import annotations

from tests.parity import plan_of
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits

AVX2 = TARGETS["avx2"].limits


def x(*shape: int) -> Value:
    return leaf("input", f"x{len(shape)}", shape, f32)


def proposed(y: Value, limits: Limits = AVX2) -> str:
    return repr(plan_of(Graph({"y": y}), limits)[0].steps[-1].schedule)
