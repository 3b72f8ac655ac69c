"""Small models that the tuner measures."""

from __future__ import annotations

from typing import Any

import ztorch as zt
from tests.parity import HERE
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.tuned_files import TunedKernel, machine_of, usual_threads
from ztorch.lower.region_kernel import RegionKernel
from ztorch.lower.schedule import ProductSchedule, Schedule
from ztorch.tune.candidates import alternatives
from ztorch.tune.tuner import kernel_works

L = zt.layers
LEVEL = "avx2" if "avx2" in HERE else HERE[-1]


def small(rows: int = 7) -> zt.Sequential:
    return zt.Sequential([L.Input((19,)), L.Dense(37, activation="gelu"), L.LayerNormalization(),
                          L.Dense(5, activation="softmax")])


def tuned(kernel: RegionKernel, schedule: Schedule, target: Any, **changes: Any) -> TunedKernel:
    values = {"work": kernel.work, "title": kernel.title, "machine": machine_of(target),
              "threads": usual_threads(None), "version": zt.__version__, "schedule": repr(schedule),
              "rule": repr(kernel.proposal()), "seconds": 1e-6, "rule_seconds": 2e-6, **changes}
    return TunedKernel(**values)


def product_of(model: Any, target: Any, rows: int = 7) -> tuple[Any, RegionKernel, Schedule]:
    """The functions of a model, the kernel of its first product, and another schedule for that."""
    functions = model.trace(batch_size=rows).functions
    kernel = next(w.kernel for w in kernel_works(functions, target)
                  if isinstance(w.kernel.proposal(), ProductSchedule))
    return functions, kernel, alternatives(kernel, kernel.proposal(), ("tile_rows",))[0]


def schedules(functions: Any, target: Any, **options: Any) -> dict[str, tuple[Schedule | None, bool]]:
    plans = compile_functions(functions, target, "m", **options).plans
    return {step.key: (step.schedule, step.tuned) for plan in plans.values() for step in plan.parts}
