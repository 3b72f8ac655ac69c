"""Every function of kernels gives the result of NumPy's function, also for special numbers."""

from __future__ import annotations

import linecache
import math
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import COMPUTING
from tests.cases.covering import share, today
from tests.cases.device_programs import able, all_agree
from tests.cases.grouping import together
from tests.parity import HERE, NARROW, C, Job, Module, agree, interpreted
from tools.kernel_functions import calls
from ztorch.errors import KernelError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph

SPECIAL = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0, 0.5, -2.5]
UNDEFINED = ("np.empty", "np.empty_like")  # whatever their elements are
ZEROS_WITHOUT_SIGN = ("np.clip", "np.cumsum", "x.cumsum", "np.sum", "x.sum", "sum")
CALLS = [c for c in calls() if c.partition("(")[0] not in UNDEFINED]


def kernel(call: str) -> Any:
    text = f"def k(x, y, c):\n    n, m = x[0, 1], y[2, 1]\n    return {call}\n"
    linecache.cache[call] = (len(text), None, text.splitlines(True), call)
    names: dict[str, Any] = {"np": np, "math": math}
    exec(compile(text, call, "exec"), names)
    return zt.kernel(names["k"])


def arguments(kind: str) -> list[np.ndarray]:
    random = np.random.default_rng(len(kind))
    make: dict[str, Any] = {
        "floats": lambda: random.uniform(-0.9, 0.9, (2, 3, 3)),
        "special": lambda: random.choice(SPECIAL, (2, 3, 3)),
        "integers": lambda: random.integers(1, 9, (2, 3, 3)).astype(np.int32),
        "small": lambda: random.integers(40, 60, (2, 3, 3)).astype(np.int8)}
    return [*make[kind](), random.random((3, 3)) > 0.5]


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@together(by=lambda call: call[:4])
@pytest.mark.parametrize("call", CALLS)
def test_each_is_the_function_of_numpy(call: str) -> None:
    one = kernel(call)
    name = call.partition("(")[0]
    for kind in ("floats", "special", "integers", *(("small",) if name.endswith("sum") else ())):
        arrays = arguments(kind)
        try:
            want = one.debug(*arrays)
        except (ValueError, OverflowError, TypeError):  # Python's functions refuse some
            continue
        leaves = {n: leaf("input", n, a.shape, str(a.dtype)) for n, a in zip("xyc", arrays, strict=True)}
        results = one.trace(leaves)
        many = isinstance(results, tuple)
        got = evaluate(list(results) if many else [results],
                       dict(zip(leaves.values(), arrays, strict=True)))
        for a, b in zip(got, want if many else [want], strict=True):
            assert a.shape == np.shape(b), kind
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-12, err_msg=kind)
            if a.dtype.kind == "f" and name not in ZEROS_WITHOUT_SIGN:
                ordered = ~np.isnan(b)
                assert (np.signbit(a) == np.signbit(b))[ordered].all(), kind


MACHINES = ["workers", *HERE, *C, *COMPUTING]


def jobs(turn: int) -> list[Job]:
    """A share of all calls, of float32 or of int32: another one on each machine and day."""
    made = []
    for call in share(CALLS, turn, len(MACHINES)):
        kind = ("floats", "integers")[len(made) % 2]
        arrays = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in arguments(kind)]
        inputs = {n: leaf("input", n, a.shape, str(a.dtype)) for n, a in zip("xyc", arrays, strict=True)}
        try:
            results = kernel(call).trace(inputs)
        except KernelError:  # such as bits of floats
            continue
        parts = results if isinstance(results, tuple) else (results,)
        made.append(Job(Graph({f"y{k}": y for k, y in enumerate(parts)}),
                        dict(zip(inputs.values(), arrays, strict=True)), f"{call} of {kind}"))
    return made


@pytest.mark.parametrize("machine", [
    pytest.param(m, marks=() if m == HERE[-1] else pytest.mark.slow) for m in MACHINES])
def test_on_machines(machine: str) -> None:
    some = jobs(MACHINES.index(machine) + today())
    if machine in COMPUTING:
        all_agree(machine, [one for one in some if able(one, machine)])
        return
    module = None if machine == "workers" else Module(some, machine)
    for k, one in enumerate(some):
        agree(one, module.run(k, threads=2) if module else interpreted(one, NARROW, workers=2))


OPTIONS = {"axis": 0, "keepdims": True}


@zt.kernel
def column_sums(x):
    return np.sum(x, **OPTIONS)


def test_keyword_arguments_may_come_from_a_dict() -> None:
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(column_sums(x), x.sum(axis=0, keepdims=True))


@zt.kernel
def sums_with_a_start(x):
    out = np.zeros(2, x.dtype)
    for i in range(2):
        out[i] = sum((x[j] for j in range(3)), start=10.0)
    return out


@zt.kernel
def thread_sums_with_a_start(x):
    out = np.zeros(2, x.dtype)
    for _, thread in zt.threads(1, 2):
        out[thread] = sum((x[j] for j in range(3)), start=10.0)
    return out


@pytest.mark.parametrize("kernel", [sums_with_a_start, thread_sums_with_a_start])
def test_the_start_of_a_sum_over_a_generator_is_refused(kernel: Any) -> None:
    """It was ignored, so the sum was wrong."""
    with pytest.raises(KernelError, match=r"a function of a generator takes no more arguments; .* 1\.0 \+ sum"):
        kernel(np.arange(3.0))
