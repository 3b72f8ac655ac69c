"""Products for machines that multiply matrices, and how far those may be off."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tests.machines.ptx.parse import parse
from tests.machines.ptx.running import rendered, run
from tests.parity import Job, buffers_of, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, f32, from_storage, to_storage
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits
from ztorch.lower.plan import KernelStep

Make = Callable[..., Value]


def plain(a: Value, b: Value) -> Value:
    return ops.matmul(a, b)


def transposed(a: Value, b: Value) -> Value:
    return ops.matmul(a, ops.transpose(b))


def with_units(units: int, precision: str = "float32") -> Limits:
    return TARGETS["cuda:sm_90a"].with_precision(precision).on_device({"compute_units": units}).limits


def job(make: Make, *shapes: tuple[int, ...], d: DType) -> Job:
    rng = np.random.default_rng(5)
    leaves = [leaf("input", f"x{k}", shape, d) for k, shape in enumerate(shapes)]
    feeds = {v: from_storage(d, to_storage(d, rng.normal(size=v.shape).astype(d.working))) for v in leaves}
    return Job(Graph({"y": make(*leaves)}), feeds)


def bound(one: Job, d: DType, k: int) -> np.ndarray:
    """How far a sum of k products may be off: rounding of operands (tf32 only), of each sum in
    float32, and of the result."""
    (y,) = one.oracle()
    size = Job(one.graph, {v: np.abs(a) for v, a in one.feeds.items()}).oracle()[0]
    of_result = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23}[d.name]
    of_operands = 2 * 2.0**-10 if d is f32 else 0.0  # truncated, or rounded, which is half of it
    return of_result * np.abs(y) + (of_operands + k * 2.0**-23) * size + 2.0**-24


def step_of(one: Job, limits: Limits, schedule: str = "") -> KernelStep:
    """The one kernel of a job, by the schedule of the rules or another."""
    [step] = plan_of(one.alone("j"), limits)[0].steps
    if schedule:
        [step] = plan_of(one.alone("j"), limits, schedules={step.key: schedule})[0].steps
    return step


def through_text(one: Job, step: KernelStep, chip: str = "sm_90a", old: str = "", new: str = "") -> np.ndarray:
    """The result of a kernel's PTX, into which a fault may have been put."""
    text = rendered([step.kernel], chip)
    broken = re.sub(old, new, text) if old else text
    assert (broken != text) == bool(old)
    held, out = buffers_of(step, one)
    run(step.kernel, held, parse(broken))
    return from_storage(next(iter(one.graph.outputs.values())).dtype, held[out])
