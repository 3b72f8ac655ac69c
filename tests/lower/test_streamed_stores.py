"""Results larger than the caches: their stores bypass them, with the same numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.parity import HERE, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.host.memory import aligned
from ztorch.ir.parse import parse
from ztorch.ir.text import show
from ztorch.lower import region_kernel
from ztorch.lower.plan import Plan
from ztorch.runtime.executable import Executable

MIB = 1 << 20


def chain(n: int, dtype: str = "float32") -> Graph:
    x = leaf("input", "x", (n,), dtype)
    return Graph({"y": ops.maximum(x, 3) + 2})


def streamed(plan: Plan) -> list[str]:
    """The memories of all kernels whose stores bypass the caches."""
    return [m.name for step in plan.steps for m in step.kernel.memories if m.streamed]


def test_rules() -> None:
    """From 48 MiB on, if the L3 cache is not larger; not what is read again or is no vector."""
    limits = TARGETS["avx512"].limits
    here = TARGETS["avx512"].limits.processor._replace(l3_bytes=8 * MIB)
    for n, expected in ((6 * MIB, ["m1"]), (6 * MIB - 1, [])):
        small = replace(limits, processor=here)
        assert streamed(plan_of(chain(n), small)[0]) == expected
    large = replace(limits, processor=here._replace(l3_bytes=96 * MIB))
    assert not streamed(plan_of(chain(6 * MIB), large)[0])
    y = ops.softmax(leaf("input", "x", (6 * MIB // 1024, 1024), "float32"))
    assert streamed(plan_of(Graph({"y": y}), small)[0]) == ["m1"]  # its exponentials are in a local array
    x = leaf("input", "x", (600, 1 << 14), "float32")  # here they are in the output, and read again
    assert not streamed(plan_of(Graph({"y": ops.softmax(x)}), small)[0])
    state = leaf("state", "w", (16 * MIB,), "float32", np.zeros(16 * MIB, np.float32), kind="weight")
    update = Graph({}, {"w": state * 0.5})
    assert not streamed(plan_of(update, limits)[0])  # in place: its lines are in the cache


@pytest.mark.parametrize("level", HERE[::-1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
def test_results(level: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a result begins between two vectors, and for a rest of less than a vector."""
    monkeypatch.setattr(region_kernel, "STREAMED_BYTES", 0)
    monkeypatch.setattr(region_kernel, "STREAMED_SHARE", 0.0)
    n = 4099
    compiled = compile_functions({"f": chain(n, dtype)}, TARGETS[level], "streamed")
    [kernel] = [step.kernel for step in compiled.plans["f"].steps]
    assert [m.streamed for m in kernel.memories] == [False, True] and parse(show(kernel)) == kernel
    call = Executable(compiled.spec, compiled.code, compiled.params, 1).bind_memory("f")
    x = (np.random.default_rng(0).standard_normal(n) * 8 + 30).astype(dtype)
    for start in (0, 1, 4):
        y = aligned((n + 8) * x.itemsize).view(dtype)
        y[:] = 7
        call([x.ctypes.data], [y[start:].ctypes.data])
        np.testing.assert_array_equal(y[start:start + n], np.maximum(x, 3) + x.dtype.type(2))
        assert (np.delete(y, np.s_[start:start + n]) == 7).all()
