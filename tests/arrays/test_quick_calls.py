"""One op on computed tensors, again: run without a look at programs."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.processes import in_threads
from ztorch.arrays import functions, programs, quick_calls, quick_graphs
from ztorch.arrays.calls import Call
from ztorch.arrays.quick_calls import MOST_BYTES
from ztorch.errors import ZtorchError

RANDOM = np.random.default_rng(0)
LARGE = MOST_BYTES // 4 + 3


@pytest.fixture(autouse=True, scope="module")
def nothing_known() -> None:
    """Programs that other tests ran with other numbers take those as inputs."""
    programs.forget()


def _last(f: Callable[[], zt.Tensor]) -> tuple[Call, zt.Tensor]:
    """The call of an op that runs the third time, and its result."""
    f().realize()
    f().realize()
    y = f()
    call = y.node.call
    assert call is not None
    return call, y.realize()


def _tensor(n: int) -> tuple[np.ndarray, zt.Tensor]:
    x = RANDOM.uniform(1, 2, n).astype(np.float32)
    return x, zt.tensor(x, device="cpu")


@pytest.mark.parametrize("n", [1, 10, LARGE])
@pytest.mark.parametrize("f", [
    lambda x, y, z: x + y, lambda x, y, z: x * 3.0, lambda x, y, z: 3.0 - x, lambda x, y, z: -x,
    lambda x, y, z: x * x, lambda x, y, z: x < y,
    lambda x, y, z: (zt.ops if isinstance(x, zt.Tensor) else np).where(x > 1, y, z)])
def test_results_equal_numpy(f: Callable[..., Any], n: int) -> None:
    arrays, tensors = zip(*(_tensor(n) for _ in range(3)), strict=True)
    call, y = _last(lambda: f(*tensors))
    np.testing.assert_array_equal(y.numpy(), f(*arrays))
    if sys.implementation.name == "cpython":
        assert call.natives
    assert not y.numpy().flags.writeable


def test_another_number_is_another_result() -> None:
    x, t = _tensor(5)
    call, _ = _last(lambda: t * 2.5)
    assert call.natives
    for number in (3.5, 2.5, float("nan"), -0.0, 0.0, 2.5):
        y = (t * number).numpy()
        np.testing.assert_array_equal(y, x * np.float32(number))
        np.testing.assert_array_equal(np.signbit(y), np.signbit(x * np.float32(number)))


def test_elements_outlive_their_tensor() -> None:
    x, t = _tensor(6)
    _, y = _last(lambda: t + t)
    elements = y.numpy()
    node = weakref.ref(y.node)
    del y
    gc.collect()
    assert node() is None
    np.testing.assert_array_equal(elements, x + x)


def test_a_device_of_a_block_and_the_default_one_choose_the_code() -> None:
    x, t = _tensor(7)
    call, _ = _last(lambda: t + 1.5)
    known = {device for device, c in programs._of_calls if c is call}
    with zt.device("cpu:scalar"):
        np.testing.assert_array_equal((t + 1.5).numpy(), x + np.float32(1.5))
    assert {device for device, c in programs._of_calls if c is call} == known | {"cpu:scalar"}
    assert call.natives
    programs.find_calls_again()  # as a new default device does
    assert not call.natives
    np.testing.assert_array_equal((t + 1.5).numpy(), x + np.float32(1.5))


def test_an_argument_without_a_value_is_named() -> None:
    _, t = _tensor(4)
    call, _ = _last(lambda: t - t)
    assert call.natives
    with pytest.raises(ZtorchError, match="has no value while"):
        zt.compiled(lambda a: float((a - a).realize().sum()))(t)


def test_gradients_pass_through_computed_tensors() -> None:
    x, t = _tensor(4)
    _last(lambda: t * t)

    def f(a: zt.Tensor) -> zt.Tensor:
        b = (a * a).realize()
        return b.sum()

    np.testing.assert_allclose(zt.grad(f)(t).numpy(), 2 * x, rtol=1e-6)


def test_results_are_aligned() -> None:
    for n in (1, 1_000, 4_070, 4_080, 4_090, 5_000, LARGE):
        x, t = _tensor(n)
        _, y = _last(lambda t=t: t + t)  # type: ignore[misc]
        elements = y.numpy()
        assert elements.ctypes.data % (64 if n < 4_096 else 4_096) == 0
        np.testing.assert_array_equal(elements, x + x)


@pytest.mark.parametrize("n", [5, LARGE])
def test_a_compiled_function_runs_again_without_a_lock(n: int) -> None:
    x, t = _tensor(n)
    offset = zt.tensor(np.float32(2.0), device="cpu")
    functions = [
        (lambda a, b: a - b, lambda a, b: a - b),
        (lambda a, b: {"y": a * b, "z": [(a - b).sum()]}, lambda a, b: (a * b, (a - b).sum())),
        (lambda a, b: (a - a.mean()) / b.max() + offset, lambda a, b: (a - a.mean()) / b.max() + 2)]
    for ours, theirs in functions:
        f = zt.compiled(ours)
        for k in range(4):  # compiled, then again and again
            y = f(t, t * float(k + 1))
            got = (y["y"], y["z"][0]) if isinstance(y, dict) else (y,)
            want = theirs(x, x * np.float32(k + 1))
            for a, b in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
                np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=1e-5)


def test_a_compiled_function_draws_new_numbers_each_call() -> None:
    draw = zt.compiled(lambda: zt.rand(3))
    seen = {tuple(draw().tolist()) for _ in range(5)}
    assert len(seen) == 5


def test_threads_share_a_call() -> None:
    x, t = _tensor(33)
    _last(lambda: t + t)
    wrong: list[int] = []

    def work(k: int) -> None:
        own = zt.tensor(x * k, device="cpu")
        for _ in range(200):
            if not np.array_equal((own + own).numpy(), x * k * 2):
                wrong.append(k)

    in_threads(work, [1, 2, 4, 8])
    assert not wrong


def test_threads_share_a_compiled_function_with_separate_arenas() -> None:
    x, t = _tensor(70_000)  # a sum in two steps
    total = zt.compiled(lambda a: (a * a).sum())
    total(t)
    wrong: list[float] = []

    def work(k: int) -> None:
        own, want = zt.tensor(x * k, device="cpu"), float((x.astype(np.float64)**2).sum()) * k * k
        wrong.extend(got for _ in range(50) if abs((got := total(own).item()) / want - 1) > 1e-4)

    in_threads(work, [1, 2, 4, 8])
    assert not wrong


@pytest.mark.parametrize("f", [lambda t: t + t, lambda t: (t * t).sum()], ids=["map", "sum"])
def test_a_long_call_releases_the_gil(
        monkeypatch: pytest.MonkeyPatch, f: Callable[[zt.Tensor], zt.Tensor]) -> None:
    monkeypatch.setattr(quick_calls, "MOST_CYCLES", 0)  # each call is a long one
    programs.forget()
    x, t = _tensor(70_000)  # whose sum takes two steps
    whole = zt.compiled(f)
    for _ in range(3):
        whole(t)
        f(t).realize()
    wrong: list[int] = []

    def work(k: int) -> None:
        own = zt.tensor(x * k, device="cpu")
        want = f(zt.tensor((x * k).astype(np.float64), device="cpu")).numpy()
        for _ in range(20):
            for y in (f(own), whole(own)):
                if not np.allclose(y.numpy(), want, rtol=1e-5):
                    wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len({f(t).numpy().tobytes() for _ in range(5)}) == 1  # the same bits each time
    programs.forget()


def test_a_compiled_function_handles_trees_natively() -> None:
    calls: list[str] = []

    @zt.compiled
    def step(params: Any, batch: Any, unused: Any, *more: Any) -> Any:
        calls.append("traced")
        x, y = batch
        return ({"b": params["b"] + x, "a": [params["a"][0] * 2.0, (y.sum(),)]},
                (x - y) * sum(m.mean() for m in more))

    def of_numpy(params: Any, batch: Any, unused: Any, *more: Any) -> Any:
        x, y = batch
        return ({"b": params["b"] + x, "a": [params["a"][0] * 2.0, (y.sum(),)]},
                (x - y) * sum(m.mean() for m in more))

    for k in range(5):
        arrays = [RANDOM.uniform(1, 2, n).astype(np.float32) for n in (4, 4, 4, 4, 3, 6)]
        a, b, x, y, u, m = map(zt.tensor, arrays)
        got, other = step({"b": b, "a": [a]}, (x, y), u, m)
        p, q, r, s, t, v = arrays
        want, rest = of_numpy({"b": q, "a": [p]}, (r, s), t, v)
        assert type(got) is dict and list(got) == ["a", "b"] and type(got["a"][1]) is tuple
        np.testing.assert_allclose(got["b"].numpy(), want["b"])
        np.testing.assert_allclose(got["a"][0].numpy(), want["a"][0])
        np.testing.assert_allclose(got["a"][1][0].numpy(), want["a"][1][0], rtol=1e-6)
        np.testing.assert_allclose(other.numpy(), rest, rtol=1e-5)
        if k > 1:  # another order of keys, pending tensors, arrays: the same numbers
            swapped, _ = step({"a": [a], "b": b + 0.0}, (x, y), u, m)
            np.testing.assert_array_equal(swapped["b"].numpy(), got["b"].numpy())
            listed, _ = step({"a": [a], "b": b}, [x, y], u, m)  # a list where a tuple was
            np.testing.assert_array_equal(listed["b"].numpy(), got["b"].numpy())
            shorter, _ = step({"a": [a[:2]], "b": b[:2]}, (x[:2], y[:2]), u, m)
            np.testing.assert_allclose(shorter["b"].numpy(), got["b"].numpy()[:2])
    assert calls == ["traced"] * 3


def test_tables_with_another_key_are_traced_again() -> None:
    x = zt.tensor([1.0, 2.0], device="cpu")
    total = zt.compiled(lambda table: sum(table.values()))
    for keys in ("ab", "ab", "ab", "abc", "a", "ab"):
        np.testing.assert_array_equal(total(dict.fromkeys(keys, x)).numpy(), [len(keys), 2 * len(keys)])


def test_arrays_and_pending_tensors_take_the_native_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a loop over rows of tensors and arrays, native functions are made once."""
    made: list[Any] = []

    def watch(kind: type, name: str) -> None:
        real = getattr(kind, name)

        def counted(self: Any, *args: Any) -> Any:
            made.append(name)
            return real(self, *args)

        monkeypatch.setattr(kind, name, counted)

    watch(quick_graphs.ArrayProgram, "native")
    watch(functions._Version, "run")
    data, targets = np.arange(40.0, dtype=np.float32).reshape(20, 2), np.arange(20) % 3
    weights, x = {"w": zt.tensor([[2.0], [3.0]], device="cpu")}, zt.tensor(data, device="cpu")

    @zt.compiled
    def f(weights: Any, x: Any, y: Any) -> Any:
        return (x @ weights["w"])[:, 0] + y

    counts = []
    for k in range(12):
        rows = np.random.default_rng(k).permutation(20)[:5]
        got = f(weights, x[rows], targets[rows])
        want = data[rows] @ [2.0, 3.0] + targets[rows]
        np.testing.assert_array_equal(np.asarray(got), want)
        assert isinstance(got, zt.Tensor)
        counts.append(len(made))
    assert counts[3] == counts[-1]
    assert isinstance(f(weights, data[:5], targets[:5].astype(np.int8)), zt.Tensor)
    arrays = {"w": np.array([[2.0], [3.0]], np.float32)}
    for given in (weights, arrays, weights, arrays):
        assert isinstance(f(given, data[:5], targets[:5]), np.ndarray if given is arrays else zt.Tensor)
