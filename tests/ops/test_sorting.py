"""Order: against NumPy's stable sort, by each algorithm, with ties, NaN and zeros."""

from __future__ import annotations

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.available import device as available
from tests.cases.grouping import together
from tests.parity import HERE, Job, Module, compiled
from ztorch import ops
from ztorch.dtypes import dtype, f64, from_storage, to_storage
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf
from ztorch.graph.rewrite import by_others
from ztorch.graph.value import Graph, Value
from ztorch.ops.kernel_sorting import order_by_digits
from ztorch.ops.kernel_spread_sorting import order_of_spread

random = np.random.default_rng(5)
WAYS = {"counted": {"COUNTED": 1 << 30}, "network": {"COUNTED": 1}, "merged": {"RUN": 2, "LONGEST": 4},
        "digits": {"CHUNK": 5, "CHUNKS": 4}}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each algorithm, whatever the length."""
    monkeypatch.setattr("ztorch.ops.orders.SHORT", 1)
    for name, number in WAYS[request.param].items():
        room = "kernel_sorting" if request.param == "digits" else "orders"
        monkeypatch.setattr(f"ztorch.ops.{room}.{name}", number)
    monkeypatch.setattr("ztorch.ops.orders.DIGITS_FROM", 1)
    return request.param


def value(y: Value, way: str = "") -> np.ndarray:
    """The value of y by the ops that sorting consists of on other machines, or on processors."""
    if way == "digits":  # Python is too slow for its loops
        return compiled(Job(by_others(Graph({"y": y}), serial=True), {}), HERE[-1])[0]
    return evaluate(by_others(Graph({"y": y})).roots, {})[0]


@together()
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 17, 31, 33, 64])
def test_every_length_with_many_ties(n: int, way: str) -> None:
    data = random.integers(0, max(2, n // 3), (4, n)).astype(np.float32)
    np.testing.assert_array_equal(value(ops.argsort(constant(data)), way),
                                  np.argsort(data, -1, kind="stable"))
    down = value(ops.argsort(constant(data), descending=True), way)
    np.testing.assert_array_equal(down, np.argsort(-data, -1, kind="stable"))


@together()
@pytest.mark.parametrize("rows, groups", [(2, 1), (31, 1), (64, 2), (70, 2), (67, 1), (128, 4)])
def test_networks_sort_rows_in_groups(rows: int, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 32 rows or more, where the number of rows can be divided."""
    monkeypatch.setattr("ztorch.ops.orders.COUNTED", 1)
    monkeypatch.setattr("ztorch.ops.orders.SHORT", 1)
    x = leaf("input", "x", (rows, 6), "float32")
    data = random.integers(0, 4, x.shape).astype(np.float32)
    job = Job(by_others(Graph({"y": ops.argsort(x)})), {x: data})
    np.testing.assert_array_equal(evaluate(job.graph.roots, {x: data})[0], np.argsort(data, -1, kind="stable"))
    assert any(v.op.name == "transpose" and v.shape == (groups, 6, rows // groups) for v in job.graph.nodes())


def test_digits_of_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of four chunks, the last of them shorter; keys of three digits."""
    monkeypatch.setattr("ztorch.ops.kernel_sorting.CHUNK", 5)
    monkeypatch.setattr("ztorch.ops.kernel_sorting.CHUNKS", 4)
    keys = random.integers(0, 1 << 20, (3, 23)).astype(np.uint32)
    order = order_by_digits(constant(keys), 20)
    np.testing.assert_array_equal(compiled(Job(Graph({"y": order}), {}), HERE[-1])[0],
                                  np.argsort(keys, -1, kind="stable"))


def test_digits_of_one_chunk() -> None:
    """Keys of four digits: all bits vary, and some keys are equal."""
    keys = random.integers(0, 1 << 32, (3, 700)).astype(np.uint32)
    keys[:, ::3] &= 0x03010201
    order = order_by_digits(constant(keys), 32)
    np.testing.assert_array_equal(compiled(Job(Graph({"y": order}), {}), HERE[-1])[0],
                                  np.argsort(keys, -1, kind="stable"))


@together()
@pytest.mark.parametrize("n, whole", [(3, 64), (40, 64), (64, 64), (65, 64), (3000, 64), (3000, 4096)])
@pytest.mark.parametrize("kind", ["spread", "tied", "crowded", "at the ends"])
def test_words_of_a_hash(n: int, whole: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one table or in 256 groups; also words that are spread so unevenly that neighbors do not tell
    their places."""
    monkeypatch.setattr("ztorch.ops.kernel_spread_sorting.WHOLE", whole)
    monkeypatch.setattr("ztorch.ops.kernel_sorting.CHUNK", 1000)
    bits = {"spread": random.integers(0, 1 << 32, n), "tied": random.integers(0, n, n) << 20,
            "crowded": random.integers(0, 1 << 16, n), "at the ends": random.choice([0, (1 << 32) - 1], n)}
    words = leaf("input", "words", (n,), "uint32")
    data = bits[kind].astype(np.uint32)
    order = compiled(Job(Graph({"y": order_of_spread(words)}), {words: data}), HERE[-1])[0]
    np.testing.assert_array_equal(order, np.argsort(data, kind="stable"))


@pytest.mark.parametrize("threads", [1, 2])
def test_random_words_are_sorted_by_their_places(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`argsort` knows the words of the generator; the order is that of any other sort."""
    monkeypatch.setattr("ztorch.ops.kernel_spread_sorting.WHOLE", 1000)
    sorted_words: list[Value] = []
    monkeypatch.setattr("ztorch.ops.kernel_spread_sorting.order_of_spread",
                        lambda words: sorted_words.append(words) or order_of_spread(words))
    seed, step = (leaf("input", name, shape, "uint32") for name, shape in (("seed", (2,)), ("step", ())))
    words = ops.random_bits((50, 60), seed, step)
    graph = by_others(Graph({"y": ops.argsort(words, axis=None), "words": words}), serial=True)
    job = Job(graph, {seed: np.array([5, 6], np.uint32), step: np.array(7, np.uint32)})
    order, data = compiled(job, HERE[-1], threads=threads)
    np.testing.assert_array_equal(order, np.argsort(data, axis=None, kind="stable"))
    assert len(sorted_words) == 1


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_axis(axis: int, way: str) -> None:
    data = random.normal(size=(5, 6, 7))
    np.testing.assert_array_equal(value(ops.argsort(constant(data), axis), way),
                                  np.argsort(data, axis, kind="stable"))
    np.testing.assert_array_equal(value(ops.sort(constant(data), axis), way), np.sort(data, axis))


def test_nan_is_last_and_both_zeros_are_one(way: str) -> None:
    data = np.array([np.nan, 0.0, -np.inf, -0.0, np.inf, -np.nan, 1.0, np.inf, 0.0])
    order = value(ops.argsort(constant(data)), way)
    np.testing.assert_array_equal(order, np.argsort(data, kind="stable"))
    down = value(ops.argsort(constant(data), descending=True), way)
    np.testing.assert_array_equal(down, [4, 7, 6, 1, 3, 8, 2, 0, 5])


@pytest.mark.parametrize("name", ["int8", "int64", "uint8", "uint32", "uint64", "bool", "float16",
                                  "bfloat16", "float32", "float64"])
def test_every_dtype_compiled(name: str, way: str) -> None:
    d = dtype(name)
    x = leaf("input", "x", (3, 7 if way == "network" else 21), d)
    if d.is_float:
        data = from_storage(d, to_storage(d, random.normal(size=x.shape)))
        data[0, 3], data[1, 4:6], data[2, 5] = np.nan, -np.inf, np.inf
    elif name == "bool":
        data = random.random(x.shape) < 0.5
    else:
        info = np.iinfo(d.numpy)
        data = random.integers(info.min, info.max, x.shape, d.numpy, endpoint=True)
        data[0, :2] = info.max, info.min
    graph = Graph({"up": ops.argsort(x), "down": ops.argsort(x, descending=True),
                   "sorted": ops.sort(x)})
    job = Job(by_others(graph, way == "digits"), {x: data})
    up, down, ordered = compiled(job, HERE[-1])
    np.testing.assert_array_equal(up, np.argsort(data, -1, kind="stable"))
    np.testing.assert_array_equal(ordered, np.take_along_axis(data, up, -1))
    key = -data if d.is_float else ~data
    np.testing.assert_array_equal(down, np.argsort(key, -1, kind="stable"))


@pytest.mark.parametrize(("target", "n"), [
    *((t, 40) for t in HERE), pytest.param(HERE[-1], 3000, marks=pytest.mark.slow)])
def test_every_algorithm_on_every_simd_level_and_thread_count(
        target: str, n: int, way: str) -> None:
    x = leaf("input", "x", (n,), "float32")
    data = random.integers(0, n // 3, x.shape).astype(np.float32)
    graph = by_others(Graph({"y": ops.argsort(x)}), way == "digits")
    module = Module([Job(graph, {x: data})], target)
    for threads in (1, 3):
        [got] = module.run(0, threads)
        np.testing.assert_array_equal(got, np.argsort(data, kind="stable"))


def test_long_rows_with_ties_and_nan() -> None:
    data = random.integers(0, 900, 3001).astype(np.float32)
    data[random.integers(0, 3001, 50)] = np.nan
    np.testing.assert_array_equal(value(ops.argsort(constant(data))), np.argsort(data, kind="stable"))


def test_the_gradient_of_sort_returns_to_the_sources(way: str) -> None:
    x = leaf("input", "x", (4, 9), f64)
    data, weights = random.normal(size=x.shape), random.normal(size=x.shape)
    [dx] = gradients(ops.sum(ops.sort(x, 0) * weights), [x])
    want = np.empty_like(weights)
    np.put_along_axis(want, np.argsort(data, 0), weights, 0)
    np.testing.assert_array_equal(evaluate([dx], {x: data})[0], want)


def test_top_k_and_its_gradient_are_pytorchs() -> None:
    torch = references.torch()
    data, weights = random.normal(size=(5, 11)), random.normal(size=(5, 3))
    theirs = torch.tensor(data, requires_grad=True)
    values, places = torch.topk(theirs, 3)
    (values * torch.tensor(weights)).sum().backward()
    x = leaf("input", "x", data.shape, f64)
    best, at = ops.top_k(x, 3)
    [dx] = gradients(ops.sum(best * weights), [x])
    got = evaluate([best, at, dx], {x: data})
    for ours, want in zip(got, (values.detach(), places, theirs.grad), strict=True):
        np.testing.assert_array_equal(ours, want.numpy())


@pytest.mark.parametrize(("shape", "axis", "k"), [((2, 700), 1, 3), ((900, 2), 0, 1), ((3, 41), 1, 40)])
def test_top_k_of_long_rows_with_ties_and_nan(shape: tuple[int, ...], axis: int, k: int) -> None:
    """Groups are compared first: the ends, ties across groups, and groups without a number."""
    data = random.integers(-9, 9, shape).astype(np.float32)
    data[random.random(shape) < 0.3] = np.nan
    data.flat[200:300] = np.nan
    data.flat[-2:] = np.inf, -np.inf
    for x in (data, np.full(shape, -np.inf, np.float32), random.integers(-9, 9, shape, np.int8)):
        key = -x if x.dtype.kind == "f" else ~x
        want = np.take(np.argsort(key, axis, kind="stable"), np.arange(k), axis)
        best, at = ops.top_k(constant(x), k, axis)
        np.testing.assert_array_equal(value(at), want)
        np.testing.assert_array_equal(value(best), np.take_along_axis(x, want, axis))


@pytest.mark.parametrize("n", [40, 700])
def test_nan_on_devices_whose_compilers_assume_none(n: int) -> None:
    available("webgpu")
    data = random.integers(-9, 9, n).astype(np.float32)
    data[[3, 5]] = np.nan
    with zt.device("webgpu:0"):
        order, (_, first) = zt.ops.argsort(zt.tensor(data)), zt.ops.top_k(zt.tensor(data), 3)
    np.testing.assert_array_equal(order.numpy(), np.argsort(data, kind="stable"))
    np.testing.assert_array_equal(first.numpy(), np.argsort(-data, kind="stable")[:3])


def test_examples_and_loops_are_sorted_by_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ztorch.ops.orders.SHORT", 4)
    data = random.integers(0, 9, (3, 2, 20)).astype(np.int8)
    many = zt.vmap(lambda x: zt.ops.argsort(x, 1))(zt.tensor(data))
    np.testing.assert_array_equal(many.numpy(), np.argsort(data, -1, kind="stable"))
    _, rows = zt.ops.scan(lambda state, x: (state, zt.ops.sort(x)), zt.tensor(0.0), zt.tensor(data[:, 0]))
    np.testing.assert_array_equal(rows.numpy(), np.sort(data[:, 0], -1))


def test_top_k_of_integers_ties_and_nan() -> None:
    best, at = (value(y) for y in ops.top_k(constant([[3, 7, 7, -1], [0, 0, 5, 5]], "int32"), 2))
    np.testing.assert_array_equal(best, [[7, 7], [5, 5]])
    np.testing.assert_array_equal(at, [[1, 2], [2, 3]])
    best, at = (value(y) for y in ops.top_k(constant([np.nan, 1.0, -np.inf]), 3))
    np.testing.assert_array_equal(at, [1, 2, 0])
    for k in (5, -1):
        with pytest.raises(ShapeError, match=r"k is between 0 and 4"):
            ops.top_k(constant([1.0, 2.0, 3.0, 4.0]), k)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 100])
def test_searchsorted_is_numpys(n: int, side: str) -> None:
    row = np.sort(random.integers(0, n, n).astype(np.float64))
    asked = np.concatenate([row, row + 0.5, [-1.0, n + 1.0, np.inf, -np.inf, np.nan]])
    np.testing.assert_array_equal(value(ops.searchsorted(constant(row), constant(asked), side)),
                                  np.searchsorted(row, asked, side))
    row[-1] = np.nan
    np.testing.assert_array_equal(value(ops.searchsorted(constant(row), constant(asked), side)),
                                  np.searchsorted(row, asked, side))


def test_searchsorted_names_the_mismatch() -> None:
    x = leaf("input", "x", (3, 2), f64)
    with pytest.raises(ShapeError, match=r"a vector of sorted numbers, not \(3, 2\)"):
        ops.searchsorted(x, x)
    with pytest.raises(ShapeError, match="'middle' is neither"):
        ops.searchsorted(x[0], x, "middle")
