"""Small graphs for each kind of loop nest of a processor, run by the interpreter: a few milliseconds each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.parity import NARROW, Job, agree, interpreted, plan_of
from ztorch import ops
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower.rewrites import winograd

Case = tuple[Callable[..., Value], tuple[tuple[int, ...], ...]]  # a function and the shapes of its inputs

SLIDING: tuple[Case, ...] = (
    (lambda x, k: ops.conv(x, k, 1, "same", groups=4), ((1, 9, 4), (3, 1, 4))),
    (lambda x, k: ops.conv(x, k, 1, "same", groups=4), ((1, 3, 6, 4), (3, 3, 1, 4))),
    (lambda x, k, b: ops.relu(ops.conv(x, k, 1, "same", groups=4) + b), ((1, 9, 4), (3, 1, 4), (4,))),
    (lambda x: ops.max_pool(x, 3, 2, "same"), ((1, 7, 12, 4),)),
)
TRANSFORMED: tuple[Case, ...] = (
    (lambda x, k: ops.conv(x, k, 1, "same"), ((1, 5, 6, 1), (3, 3, 1, 2))),
    (lambda x, k: ops.conv(x, k, 1, "valid"), ((1, 6, 6, 1), (3, 3, 1, 2))),
)


def check(function: Callable[..., Value], shapes: tuple[Any, ...], kind: str) -> None:
    leaves = [leaf("input", f"x{k}", shape, f32) for k, shape in enumerate(shapes)]
    rng = np.random.default_rng(3)
    feeds = {v: rng.standard_normal(v.shape).astype(np.float32) for v in leaves}
    job = Job(Graph({"y": function(*leaves)}), feeds, kind)
    kinds = [s.schedule.kind for s in plan_of(job.alone("j"), NARROW)[0].steps]
    assert kind in kinds, kinds
    agree(job, interpreted(job, NARROW), terms=60)


def test_windows_that_slide() -> None:
    for case in SLIDING:
        check(*case, "sliding")


def test_transformed_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "TRANSFORM_GAIN", 1e9)
    monkeypatch.setattr(winograd, "TRANSFORM_CHANNELS", 1)
    for case in TRANSFORMED:
        check(*case, "winograd")
