"""Programs of ops on arrays are compiled once: their key, how many are kept, threads and forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch.arrays import programs
from ztorch.errors import ConfigError, DataError, ShapeError, Unsupported

random = np.random.default_rng(0)
X = random.normal(size=(3, 5)).astype(np.float32)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    programs.forget()
    yield
    programs.forget()


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all programs that are compiled from now on."""
    names: list[str] = []
    real = programs.build

    def counted(functions: Any, device: str, name: str) -> Any:
        names.append(f"{name} on {device}")
        return real(functions, device, name)

    monkeypatch.setattr(programs, "build", counted)
    return names


# -- errors ------------------------------------------------------------------------------------------


@together()
@pytest.mark.parametrize(("wrong", "kind", "parts"), [
    (lambda: zt.ops.matmul(X, X), ShapeError, ["(3, 5) and (3, 5)", "zt.ops.matmul(float32[3, 5], float32[3, 5])"]),
    (lambda: zt.ops.softmax(X, axis=4), ShapeError, ["axis 4", "zt.ops.softmax(float32[3, 5], axis=4)"]),
    (lambda: zt.ops.softmax(), TypeError, ["zt.ops.softmax", "'x'"]),
    (lambda: zt.ops.softmax(X, axes=1), TypeError, ["zt.ops.softmax", "'axes'"]),
    (lambda: zt.ops.add(X, "two"), DataError, ["zt.ops.add: b is an array of <U3"]),
    (lambda: zt.ops.erf(X + 1j), Unsupported, ["zt.ops.erf", "complex128"]),
    (lambda: zt.ops.exp([[1.0], [1.0, 2.0]]), DataError, ["zt.ops.exp: a is not an array"]),
    (lambda: zt.ops.add(np.ones(2, np.uint8), 300), DataError, ["300 does not fit uint8"]),
    (lambda: zt.ops.bitwise_and(X, 1), ShapeError, ["float32", "ops.cast"]),
    (lambda: zt.ops.softmax(X, axis={}), ConfigError, ["zt.ops.softmax(axis=...)", "{}"]),
    (lambda: zt.ops.add(X, None), DataError, ["zt.ops.add: b is None"]),
    (lambda: zt.ops.sort(X, axis="a"), ShapeError, ["axis 'a' is not an integer", "zt.ops.sort"]),
    (lambda: zt.ops.mean(X, axis=1.0), ShapeError, ["axis 1.0 is not an integer"]),
    (lambda: zt.ops.expand_dims(X, 7), ShapeError, ["axis 7 is out of range for rank 3"]),
    (lambda: zt.ops.pad(X, (1,), (1,)), ShapeError, ["padding (1,) must be a number for each axis"]),
    (lambda: zt.ops.reshape(X, "ab"), ConfigError, [
        "zt.ops.reshape cannot be called with these arguments (", "its signature is reshape(x: Value, shape"]),
    (lambda: zt.ops.iota((3,), 5), ShapeError, ["axis 5 is out of range for rank 1"]),
    (lambda: zt.ops.zeros(True), ShapeError, ["True is not a shape"]),
    (lambda: zt.ops.iota((2, -1)), ShapeError, ["(2, -1) is not a shape"]),
    (lambda: zt.compiled(3), ConfigError, ["compiled takes a function of tensors, not 3"]),
    (lambda: zt.compiled(np.linalg.det)(X), TypeError, ["det", "no value while"]),
    (lambda: zt.compiled(lambda a: a if a > 0.0 else -a)(X), ConfigError, ["ops.where in place of if"]),
])
def test_errors_teach(wrong: Any, kind: type, parts: list[str]) -> None:
    for _ in range(2):  # failures are not cached
        with pytest.raises(kind) as caught:
            wrong()
        for part in parts:
            assert part in str(caught.value)
    assert not programs._programs


# -- compiled once -----------------------------------------------------------------------------------


def test_compiled_once_for_all_that_matters(builds: list[str]) -> None:
    for x in (X, X + 1, X[::-1]):
        for low in (0.0, 0.25, 0.5):
            np.testing.assert_array_equal(zt.ops.clip(x, low, 1.0), np.clip(x, low, 1.0))
            zt.ops.softmax(x, axis=1)
    # The first number is part of the program; once it has changed, numbers are arguments.
    assert builds == ["clip on cpu", "softmax on cpu", "clip on cpu"]
    zt.ops.softmax(X, axis=0)
    zt.ops.softmax(X[:2], axis=1)
    zt.ops.softmax(X.astype(np.float64), axis=1)
    with zt.device("cpu:scalar"):
        zt.ops.softmax(X, axis=1)
        zt.ops.softmax(X, axis=1)
    assert len(builds) == 7 and builds[-1] == "softmax on cpu:scalar"


def test_equal_attributes_of_other_types_are_other_programs(builds: list[str]) -> None:
    assert zt.ops.leaky_relu(X, 0.5).shape == X.shape
    zt.ops.sum(X, 1)
    zt.ops.sum(X, (1,))
    zt.ops.round(X, 1)
    zt.ops.round(X, True)
    assert len(builds) == 5


def test_the_least_recently_used_is_dropped_first(
        builds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "CAPACITY", 2)
    for n in (1, 2, 1, 3, 1):  # 3 takes the place of 2
        zt.ops.exp(np.zeros(n))
    assert len(builds) == 3 and len(programs._programs) == 2
    zt.ops.exp(np.zeros(2))
    assert len(builds) == 4


def test_programs_stay_within_the_total_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "CAPACITY_BYTES", 100_000)
    for n in range(10_000, 10_005):  # 160 kB each: only the newest stays
        zt.ops.exp(np.zeros(n))
        assert len(programs._programs) == 1
    for n in range(3):
        zt.ops.exp(np.zeros(n + 1))
    assert len(programs._programs) == 3


def test_threads_compile_once_and_never_mix_their_numbers(builds: list[str]) -> None:
    wrong: list[str] = []
    start = threading.Barrier(6)

    def work(which: int) -> None:
        start.wait()
        for turn in range(40):
            x = np.full((4, 33), which + turn / 64)
            if not np.array_equal(zt.ops.mul(x, 2.0), x * 2):
                wrong.append(f"thread {which}, turn {turn}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    assert not wrong and builds == ["mul on cpu"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_computes_while_its_parent_does() -> None:
    want = zt.ops.exp(X)
    program = next(iter(programs._programs.values()))
    with program._lock:  # as if another thread of the parent were at it
        child = os.fork()
        if child == 0:
            os._exit(0 if np.array_equal(zt.ops.exp(X), want) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


# -- functions ---------------------------------------------------------------------------------------


def test_a_function_becomes_one_program(builds: list[str]) -> None:
    calls = []

    @zt.compiled
    def both(a: Any, b: Any) -> Any:
        calls.append(a)
        d = a - b
        return zt.ops.sum(d * d, axis=1), zt.ops.max(d)

    for x in (X, X * 2):
        squares, largest = both(x, np.ones(5, np.float32))
        np.testing.assert_allclose(squares, ((x - 1) ** 2).sum(1), rtol=1e-6)
        assert largest == (x - 1).max()
    assert len(calls) == 1 and builds == ["both on cpu"]
    with pytest.raises(ShapeError, match=r"in both\(float32\[3, 5\], float64\[4\]\)"):
        both(X, np.ones(4))
    with pytest.raises(TypeError, match="nothing must give a tensor, or a tree of tensors, not None"):
        zt.compiled(nothing)(X)


def nothing(x: Any) -> None:
    return None


def test_what_imports_what() -> None:
    """The package and an artifact load without ops or compiler; arrays bring both."""
    code = """
import sys, ztorch as zt
heavy = ("ztorch.arrays.tensor", "ztorch.compile.pipeline", "ztorch.ops", "numpy")
assert not any(m in sys.modules for m in heavy)
_ = zt.load
assert not any(m in sys.modules for m in heavy[:3])
zt.ops.softmax
assert "ztorch.arrays.tensor" not in sys.modules and "ztorch.compile.pipeline" not in sys.modules
import numpy as np
print(zt.ops.add(np.ones(1), 1)[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False)
    assert done.stdout == "2.0\n", done.stderr
