"""`scan`, `while_loop` and `cond` on values: results compared with Python's loops, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import ops
from ztorch.errors import ConfigError, ShapeError, UnknownName
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.value import Value, layer_scope

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def x() -> Value:
    return leaf("input", "x", X.shape, "float32")


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_a_loop(reverse: bool) -> None:
    v = x()
    state = {"sum": v[0], "count": ops.full((), 0, "int32")}
    last, kept = ops.scan(lambda s, r: ({"sum": s["sum"] * r, "count": s["count"] + 2},
                                        [s["sum"], {"r": r + 1.0}]), state, v, reverse=reverse)
    total, count, rows = X[0], 0, np.zeros_like(X)
    for t in reversed(range(5)) if reverse else range(5):
        rows[t] = total
        total, count = total * X[t], count + 2
    got = evaluate([last["sum"], last["count"], kept[0], kept[1]["r"]], {v: X})
    for a, b in zip(got, (total, count, rows, X + 1), strict=True):
        np.testing.assert_array_equal(a, b)


def test_branches_may_use_a_value_many_times() -> None:
    """Each number of the first branch, which needs no operand, is twice the one before."""
    def powers(v: Value) -> Value:
        total = ops.full((5, 3), 1.0, "float32")
        for _ in range(60):
            total = total + total
        return total

    v = x()
    result = ops.cond(v[0, 0] < np.inf, powers, lambda v: v, v)
    np.testing.assert_array_equal(evaluate([result], {v: X})[0], np.full((5, 3), 2.0**60))


@pytest.mark.parametrize(("start", "limit", "want"), [(3.0, 20, 192.0), (3.0, 2, 12.0),
                                                      (200.0, 20, 200.0), (3.0, 0, 3.0)])
def test_a_while_loop_ends_by_its_condition_or_its_limit(start: float, limit: int,
                                                         want: float) -> None:
    v = leaf("input", "v", (), "float32")
    y = ops.while_loop(lambda s: s < 100.0, lambda s: s * 2.0, v, max_steps=limit)
    assert evaluate([y], {v: np.float32(start)})[0] == want


@pytest.mark.parametrize(("cond", "body"), [
    (lambda s: s[0] < 100.0, lambda s: (s[0] * 2.0, s[1] + 1)),
    (lambda a, n: a < 100.0, lambda a, n: (a * 2.0, n + 1)),
    (lambda s: s[0] < 100.0, lambda *s: (s[0] * 2.0, s[1] + 1)),
    (lambda a, *_: a < 100.0, lambda s, more=1: (s[0] * 2.0, s[1] + more))])
def test_functions_take_states_as_one_argument_or_several(cond: Any, body: Any) -> None:
    v = leaf("input", "v", (), "float32")
    state = ops.while_loop(cond, body, (v, ops.full((), 0, "int32")), max_steps=20)
    assert [float(y) for y in evaluate(list(state), {v: np.float32(3.0)})] == [192.0, 6.0]


@pytest.mark.parametrize("sign", [1, -1])
def test_one_branch_runs(sign: int) -> None:
    v = x()
    y = ops.cond(ops.sum(v) * sign > ops.sum(v) * -sign, lambda a: (a * 2.0, a),
                 lambda a: (a - 1.0, a), v)
    want = X * 2 if X.sum() * sign > 0 else X - 1
    np.testing.assert_array_equal(evaluate([y[0]], {v: X})[0], want)


def test_zero_iterations_return_the_initial_state() -> None:
    v = x()
    last, kept = ops.scan(lambda s, _: (s + 1.0, s), v, length=0)
    assert kept.shape == (0, 5, 3)
    np.testing.assert_array_equal(evaluate([last], {v: X})[0], X)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda v: ops.scan(lambda s, r: (s[0], r), v[0], v), ShapeError,
     r"part 0 of the state is float32\[3\] before an iteration, but float32\[\] after it"),
    (lambda v: ops.scan(lambda s, r: (ops.cast(s, "int32"), r), v[0], v), ShapeError,
     r"float32\[3\] before an iteration, but int32\[3\] after it; keep shape and dtype"),
    (lambda v: ops.scan(lambda s, r: s + r, v[0], v), ShapeError,
     r"must return \(state, kept\), .*, not tensor"),
    (lambda v: ops.scan(lambda s, r: ((s, s), r), v[0], v), ShapeError, "takes tensor as its state, but returns"),
    (lambda v: ops.scan(lambda s, r: (s, r), v[0]), ConfigError, "needs length="),
    (lambda v: ops.scan(lambda s, r: (s, r), v[0], length=-1), ConfigError,
     r"length=-1\) is negative"),
    (lambda v: ops.scan(lambda s, r: (s, r), v[0], length=2.5), ConfigError, "must be an integer"),
    (lambda v: ops.scan(lambda s, r: (s, r), v[0], v, length=4), ShapeError,
     "5 elements, but there are 4 iterations"),
    (lambda v: ops.scan(lambda s, r: (s, r), v[0], (v, v[:2])), ShapeError, "need one length"),
    (lambda v: ops.scan(lambda s, r: (s, r), v[0], ops.sum(v)), ShapeError, "an axis to iterate over"),
    (lambda v: ops.while_loop(lambda s: s < 1.0, lambda s: s, v[0, 0]), ConfigError,
     "needs max_steps="),
    (lambda v: ops.while_loop(lambda s: s < 1.0, lambda s: s, v, max_steps=3), ShapeError,
     r"the condition is bool\[5, 3\]; it must be one bool"),
    (lambda v: ops.while_loop(lambda s: s, lambda s: s, v[0, 0], max_steps=3), ShapeError,
     r"the condition is float32\[\]"),
    (lambda v: ops.cond(v[0, 0] > 0, lambda: v, lambda: v[0]), ShapeError,
     r"true_fn returns float32\[5, 3\], but false_fn returns float32\[3\]"),
    (lambda v: ops.cond(v[0, 0] > 0, lambda: v, lambda: (v, v)), ShapeError,
     r"true_fn returns tensor, but false_fn returns \(tensor, tensor\)"),
])
def test_wrong_calls_name_the_culprit(call: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call(x())
    with layer_scope("mine"), pytest.raises(error, match=f"layer 'mine': .*{message}"):
        call(x())


def test_arguments_that_are_not_those_of_a_loop_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"scan\(f=...\) must be a function, not "):
        ops.scan(x(), x()[0], x())  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match=r"unknown argument of while_loop 'state'.*init"):
        ops.while_loop(lambda s: s < 1.0, lambda s: s, state=x())  # type: ignore[call-arg]


def test_loops_in_the_form_of_keras() -> None:
    k, x = ops.while_loop(cond=lambda k, x: k < 5, body=lambda k, x: (k + 1, x * 2.0),  # type: ignore[call-arg]
                          loop_vars=[np.int32(0), np.float32(1.5)], maximum_iterations=9)
    assert (int(k), float(x), x.dtype) == (5, 48.0, "float32")
    y = zt.ops.fori_loop(1, 4, lambda k, x: x * 2.0 + k, np.float32(1.0))
    assert (float(y), y.dtype) == (19.0, "float32")
