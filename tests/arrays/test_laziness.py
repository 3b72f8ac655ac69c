"""Recorded ops run when a value is needed: together, once, and compiled once for a structure."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import traceback
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.arrays import programs
from ztorch.errors import ShapeError

pytestmark = pytest.mark.usefixtures("by_numpy")


def pending(x: Any) -> bool:
    return x.node.block is None


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many results each native call computed, from now on."""
    counts: list[int] = []
    real = programs.ArrayProgram.run

    def counted(self: Any, *args: Any) -> None:
        counts.append(len(args[-1]))
        real(self, *args)

    monkeypatch.setattr(programs.ArrayProgram, "run", counted)
    return counts


def test_a_chain_is_one_program_and_a_loop_compiles_once(builds: list[str], runs: list[int]) -> None:
    for turn in range(5):
        x = zt.tensor([1.0, 2.0, turn])
        y = x
        for _ in range(10):
            y = zt.ops.sqrt(y * y + 1.0)
        total = y.sum()
        assert pending(total) and pending(y)
        want = np.sqrt(np.array([1.0, 2.0, turn]) ** 2 + 10).sum()
        assert total.item() == pytest.approx(want, rel=1e-6)
    assert builds == ["sum"] and runs == [2] * 5  # y is still referred to, so it is kept


def test_referenced_tensors_are_computed_once(runs: list[int]) -> None:
    x = zt.tensor([1.0, 2.0])
    shared = x * 3.0
    first, second = shared + 1.0, shared - 1.0
    assert first.tolist() == [4.0, 7.0] and not pending(shared) and pending(second)
    assert second.tolist() == [2.0, 5.0] and shared.tolist() == [3.0, 6.0]
    assert runs == [2, 1]  # first and shared, then second
    only = (x * 5.0) + 1.0  # nothing refers to x * 5
    assert only.tolist() == [6.0, 11.0] and runs == [2, 1, 1]


def test_two_consumers_of_an_unreferenced_tensor(runs: list[int]) -> None:
    def both(x: Any) -> Any:
        shared = zt.ops.exp(x)
        return shared + 1.0, shared * 2.0

    a, b = both(zt.tensor([0.0]))
    assert a.item() == 2.0 and b.item() == 2.0
    assert runs == [2, 1]  # the second still needed the shared node
    operands = b.node.operands
    del a, b
    gc.collect()
    assert operands == ()  # its operands may be freed


def test_one_operand_twice_and_results_of_one_call(runs: list[int]) -> None:
    x = zt.tensor([3.0, 1.0, 2.0])
    square = (x + 1.0) * (x + 1.0)
    y = x + 1.0
    assert (y * y).tolist() == square.tolist() == [16.0, 4.0, 9.0]
    total = (x * x).sum()
    assert total.item() == 14.0 and runs == [2, 1, 1]
    values, places = zt.ops.top_k(x * 2.0, 2)
    assert places.tolist() == [0, 2] and values.tolist() == [6.0, 4.0]
    assert runs == [2, 1, 1, 2]


NUMBERS = [0.0, -0.0, 1.0, 2.5, math.nan, math.inf, -math.inf, 1e-320, 1e308, -7.0]


def test_numbers_vary_without_compiling_again(builds: list[str]) -> None:
    x = zt.tensor([1.0, -2.0], dtype="float64")
    for k in [*NUMBERS, *NUMBERS]:
        with np.errstate(all="ignore"):
            want = np.array([1.0, -2.0]) * k
        np.testing.assert_array_equal((x * k).numpy().view(np.uint64), want.view(np.uint64), str(k))
    assert builds == ["mul", "mul"]
    for k in (0, 1, -1, (1 << 62) + 1, -(1 << 63), (1 << 63) - 1):
        np.testing.assert_array_equal((zt.tensor([1, 0]) + k).numpy(), np.array([1, 0]) + np.int64(k)
                                      if k != (1 << 63) - 1 else [-(1 << 63), (1 << 63) - 1])
    assert builds == ["mul", "mul", "add", "add"]


def test_one_true_and_one_point_zero_are_three_things() -> None:
    x = zt.tensor([2, 3])
    for k, d in ((True, "int64"), (1, "int64"), (1.0, "float64")) * 2:
        assert (x * k).dtype.long == d and (x * k).tolist() == [2, 3]
    assert (zt.tensor([True]) & True).dtype.long == "bool"
    assert zt.ops.sum(zt.ones((2, 3)), 1).shape == (2,)
    assert zt.ops.sum(zt.ones((2, 3)), axis=0, keepdims=True).shape == (1, 3)
    assert zt.ops.sum(zt.ones((2, 3)), axis=0, keepdims=1).shape == (1, 3)
    low, high = zt.ops.leaky_relu(x * -1.0, 0.0), zt.ops.leaky_relu(x * -1.0, -0.0)
    assert [math.copysign(1, v) for v in low.tolist() + high.tolist()] == [-1, -1, 1, 1]


def test_several_numbers_vary_one_by_one(builds: list[str]) -> None:
    for a, b in ((1.0, 2.0), (3.0, 2.0), (3.0, 5.0), (1.0, 2.0), (7.0, 8.0)):
        assert (zt.tensor([2.0]) * a + b).item() == 2 * a + b
    assert len(builds) == 3


def test_a_long_loop(builds: list[str]) -> None:
    x = zt.tensor([1.0, 2.0], dtype="float64")
    for _ in range(10_000):
        x = x * 1.0001
    np.testing.assert_allclose(x.numpy(), np.array([1.0, 2.0]) * 1.0001 ** 10_000)
    assert 1 <= len(builds) <= 3


def test_a_wide_graph_without_recursion() -> None:
    x = y = zt.tensor([1.0], dtype="float64")
    for _ in range(150):
        y = y + y
    assert y.item() == 2.0 ** 150 and x.item() == 1.0
    parts = [zt.tensor([float(k)]) * 2.0 for k in range(100)]
    assert zt.ops.concat(parts).tolist() == [2.0 * k for k in range(100)]


def test_without_laziness(builds: list[str]) -> None:
    x = zt.tensor([1.0, 2.0])
    with zt.lazy(False):
        y = x * 2.0
        assert not pending(y) and builds == ["mul"]
        double = zt.compiled(lambda t: t * 2.0)
        assert double(x).tolist() == [2.0, 4.0]
        assert zt.grad(lambda t: (t * double(t)).sum())(x).tolist() == [4.0, 8.0]
        with zt.lazy():
            assert pending(x + 1.0)
        assert not pending(x + 1.0)
    assert pending(x * 2.0)
    zt.lazy(False)
    try:
        assert not pending(x * 2.0)
    finally:
        zt.lazy(True)


def test_the_environment_switches_laziness_off() -> None:
    code = ("import ztorch as zt; x = zt.tensor([2.0]); y = x * x\n"
            "print(y.node.block is None, zt.compiled(lambda t: t + 1.0)(y).item())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.getcwd(), "ZTORCH_LAZY": "0"})
    assert done.stdout == "False 5.0\n", done.stderr


def test_errors_come_from_the_line_of_the_op() -> None:
    x = zt.ones((2, 3))
    y = x * 2.0
    with pytest.raises(ShapeError, match=r"zt.ops.matmul\(float32\[2, 3\], float32\[2, 3\]\)") as caught:
        y = y @ y  # here
    assert any(f.line and "# here" in f.line for f in traceback.extract_tb(caught.tb))
    assert y.tolist() == [[2.0] * 3] * 2


def test_empty_tensors() -> None:
    x = zt.zeros((0, 3))
    assert (x + 1.0).shape == (0, 3) and (x + 1.0).tolist() == [] and x.sum().item() == 0.0
    assert (x.sum(axis=0)).tolist() == [0.0] * 3 and zt.ops.concat([x, zt.ones((1, 3))], axis=0).tolist() == [[1.0] * 3]
    assert (x @ zt.ones((3, 2))).shape == (0, 2) and (zt.ones((2, 0)) @ zt.zeros((0, 1))).tolist() == [[0.0]] * 2
    assert zt.compiled(lambda t: (t, t * 2.0))(x)[1].shape == (0, 3)
    assert x.numpy().shape == (0, 3) and zt.grad(lambda t: t.sum())(x).shape == (0, 3)


def test_results_that_are_an_operand() -> None:
    x = zt.tensor([1.0, 2.0])
    for same in (x.reshape(2), x.astype("float32"), x[:], x[...], x.transpose(0), +x):
        assert same.tolist() == [1.0, 2.0]
    y = x * 2.0
    z = y.reshape(2)
    assert z.tolist() == [2.0, 4.0] and y.tolist() == [2.0, 4.0]
    a = np.array([1.0, 2.0])
    result = zt.ops.reshape(a, (2,))
    result[0] = 9
    assert a[0] == 1.0


def test_constants_only() -> None:
    ones = zt.ones((2, 2)) + zt.ones(2)
    assert ones.tolist() == [[2.0, 2.0]] * 2
    assert (zt.full((2,), 3.5) * zt.zeros(2) + 1).tolist() == [1.0, 1.0]


def test_realize_returns_the_tensor_itself() -> None:
    x = zt.tensor([1.0]) + 1.0
    assert x.realize() is x and not pending(x) and x.node.call is None and x.node.operands == ()


def test_one_call_and_a_structure_of_one_call_are_one_program(builds: list[str]) -> None:
    x, y = zt.tensor([1.0, 2.0]), zt.tensor([3.0, 5.0])
    assert (x - y).tolist() == [-2.0, -3.0] and (y - x).tolist() == [2.0, 3.0]
    a, b = x - y, y - x
    zt.ops.stack([a, b], axis=0).realize()
    assert a.tolist() == [-2.0, -3.0] and builds == ["sub", "stack"]
    assert (x - x).tolist() == [0.0, 0.0] and builds == ["sub", "stack"]  # one operand twice
    for k in (2.0, 3.0, 2.0):
        assert (k - x).tolist() == [k - 1, k - 2]
    assert builds == ["sub", "stack", "sub", "sub"]  # a number that varies is an input


def test_a_failed_compilation_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not taken for a program that is ready, nor for one with the numbers of before."""
    programs.forget()
    real = programs.build

    def failing(*args: Any) -> Any:
        raise ShapeError("no room")

    x = zt.tensor([1.0, 2.0])
    for turn, k in enumerate((2.0, 3.0, 3.0, 4.0)):  # the second turn compiles again, for any number
        if turn < 2:
            monkeypatch.setattr(programs, "build", failing)
            for _ in range(2):
                with pytest.raises(ShapeError, match="no room"):
                    (x * k).numpy()
            monkeypatch.setattr(programs, "build", real)
        assert (x * k).tolist() == [k, 2 * k]
    for k in (2.0, 3.0, 4.0):
        assert (x * k).tolist() == [k, 2 * k]
