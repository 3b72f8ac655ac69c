"""Look-ups and their gradients: sums at places, by looking through and by sorting, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.parity import HERE, Job, Module, compiled
from ztorch import ops
from ztorch.dtypes import dtype, f64, from_storage, to_storage
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf
from ztorch.graph.rewrite import by_others
from ztorch.graph.value import Graph, Value, topological

random = np.random.default_rng(8)


@pytest.fixture(params=["table", "looked through", "sorted", "halved"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every algorithm, whatever the sizes."""
    monkeypatch.setattr("ztorch.ops.scattering.FEW", 0)
    monkeypatch.setattr("ztorch.ops.scattering.CHUNK_UPDATES", 4)
    if request.param in ("sorted", "halved"):
        monkeypatch.setattr("ztorch.ops.scattering.SCAN_LIMIT", 0)
        monkeypatch.setattr("ztorch.ops.scattering.effort", lambda n: -(1 << 40))
    if request.param == "halved":
        monkeypatch.setattr("ztorch.ops.scattering.LONGEST", 7)
    return request.param


def written(y: Value, way: str) -> Value:
    """y as it is, or by other ops than the table."""
    return y if way == "table" else by_others(Graph({"y": y})).outputs["y"]


def value(y: Value, way: str = "table") -> np.ndarray:
    return evaluate([written(y, way)], {})[0]


def added(x: np.ndarray, at: np.ndarray, rows: np.ndarray, axis: int) -> np.ndarray:
    """The definition, by NumPy."""
    y = x.copy()
    inside = (at >= 0) & (at < x.shape[axis])
    np.add.at(np.moveaxis(y, axis, 0), at[inside], np.moveaxis(rows, axis, 0)[inside])
    return y


@together()
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("m", [1, 9, 30])
def test_scatter_add_is_numpys(axis: int, m: int, way: str) -> None:
    x = random.normal(size=(4, 5, 3))
    at = random.integers(-1, x.shape[axis] + 1, m).astype(np.int32)
    rows = random.normal(size=(*x.shape[:axis], m, *x.shape[axis + 1:]))
    got = value(ops.scatter_add(constant(x), constant(at), constant(rows), axis), way)
    np.testing.assert_allclose(got, added(x, at, rows, axis), atol=1e-13)


def test_sorting_follows_the_direction(way: str) -> None:
    y = ops.scatter_add(constant(np.zeros(50)), constant(np.zeros(20, np.int32)),
                        constant(np.ones(20)))
    names = {v.op.name for v in topological([written(y, way)])}
    assert ("take_along_axis" in names) == (way in ("sorted", "halved"))
    assert ("sums_at" in names) == (way == "table")
    assert value(y, way)[0] == 20


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "int8", "int32",
                                  "uint16", "int64"])
def test_every_dtype_compiled(name: str, way: str) -> None:
    d = dtype(name)
    x, rows = leaf("input", "x", (6, 3), d), leaf("input", "rows", (21, 3), d)
    at = leaf("input", "at", (21,), "int64")
    feeds = {v: from_storage(d, to_storage(d, random.normal(size=v.shape))) if d.is_float else
             random.integers(0, 50, v.shape).astype(d.numpy) for v in (x, rows)}
    feeds[at] = random.integers(-1, 7, 21)
    job = Job(Graph({"y": written(ops.scatter_add(x, at, rows), way)}), feeds)
    [got] = compiled(job, HERE[-1])
    exact = [a.astype(np.float64) if d.is_float else a for a in (feeds[x], feeds[rows])]
    want = added(exact[0], feeds[at], exact[1], 0)
    eps = {"float16": 2.0**-9, "bfloat16": 2.0**-6, "float32": 1e-6, "float64": 1e-15}.get(name, 0)
    np.testing.assert_allclose(got.astype(want.dtype), want, rtol=eps, atol=eps * 4)


def test_infinities_stay_in_their_rows(way: str) -> None:
    rows = np.array([np.inf, 1.0, np.nan, 2.0, -np.inf, 3.0, 0.5, 0.25, 4.0])
    at = np.array([0, 1, 2, 1, 3, 4, 4, 1, 4], np.int32)
    got = value(ops.scatter_add(constant(np.zeros(6)), constant(at), constant(rows)), way)
    np.testing.assert_array_equal(got, [np.inf, 3.25, np.nan, -np.inf, 7.5, 0.0])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_and_its_gradient(axis: int, way: str) -> None:
    x, at = random.normal(size=(6, 7, 5)), random.integers(0, 5, (3, 11)).astype(np.int32)
    v = leaf("input", "x", x.shape, f64)
    y = ops.take(v, constant(at), axis)
    weights = random.normal(size=y.shape)
    [dx] = gradients(ops.sum(y * weights), [v])
    got, slope = evaluate([y, written(dx, way)], {v: x})
    np.testing.assert_array_equal(got, np.take(x, at, axis))
    a = axis % 3
    flat = weights.reshape(*x.shape[:a], at.size, *x.shape[a + 1:])
    np.testing.assert_allclose(slope, added(np.zeros_like(x), at.reshape(-1), flat, a), atol=1e-13)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_along_axis_and_its_gradient(axis: int, way: str) -> None:
    x = random.normal(size=(6, 4, 5))
    shape = list(x.shape)
    shape[axis] = 13
    at = random.integers(0, x.shape[axis], shape).astype(np.int32)
    v = leaf("input", "x", x.shape, f64)
    y = ops.take_along_axis(v, constant(at), axis)
    weights = random.normal(size=shape)
    [dx] = gradients(ops.sum(y * weights), [v])
    got, slope = evaluate([y, written(dx, way)], {v: x})
    np.testing.assert_array_equal(got, np.take_along_axis(x, at, axis))
    want = np.zeros_like(x)
    places = list(np.indices(shape))
    places[axis] = at
    np.add.at(want, tuple(places), weights)
    np.testing.assert_allclose(slope, want, atol=1e-13)


@pytest.mark.parametrize("target", HERE)
def test_indices_from_data_and_loops_together(target: str) -> None:
    """Neighboring lanes read different rows and different columns."""
    jobs = []
    for shape, at_shape, axis in (((5, 33), (7, 33), 0), ((5, 33), (5, 40), 1), ((3, 9, 4), (3, 5, 4), 1),
                                  ((5, 33), (7, 1), 0), ((2, 5, 17), (1, 6, 1), 1)):
        x, at = leaf("input", "x", shape, "float32"), leaf("input", "at", at_shape, "int32")
        jobs.append(Job(Graph({"y": ops.take_along_axis(x, at, axis)}), {
            x: random.normal(size=shape).astype(np.float32),
            at: random.integers(-2, shape[axis] + 2, at_shape).astype(np.int32)}))
    module = Module(jobs, target)
    for k, job in enumerate(jobs):
        [want], [got] = job.oracle(), module.run(k)
        np.testing.assert_array_equal(got, want)


def test_broadcasts_as_numpy() -> None:
    x, at = random.normal(size=(3, 4)), np.array([[2], [0]], np.int32)
    np.testing.assert_array_equal(value(ops.take_along_axis(constant(x), constant(at), 0)),
                                  np.take_along_axis(x, np.broadcast_to(at, (2, 4)), 0))


@pytest.mark.parametrize("many", [False, True])
def test_an_embedding_gradient_has_the_same_bits_for_any_threads(many: bool) -> None:
    """Rows shared out, or tables for chunks of readers."""
    rows, ids = (50, 4000) if many else (3000, 400)
    table, at = leaf("state", "t", (rows, 24), "float32"), leaf("input", "i", (ids,), "int32")
    g = leaf("input", "g", (ids, 24), "float32")
    [dt] = gradients(ops.sum(ops.take(table, at, 0) * g), [table])
    feeds = {table: np.zeros(table.shape), g: random.normal(size=g.shape).astype(np.float32),
             at: random.integers(0, rows // 8, ids).astype(np.int32)}
    assert [v.attrs["chunks"] for v in topological([dt]) if v.op.name == "sums_at"] == [16 if many else 1]
    module = Module([Job(Graph({"dt": dt}), feeds)], HERE[-1])
    alone = module.run(0, 1)
    want = added(np.zeros(table.shape), feeds[at], feeds[g].astype(np.float64), 0)
    np.testing.assert_allclose(alone[0], want, rtol=1e-5, atol=1e-6 * np.sqrt(ids / (rows // 8)))
    for threads in (2, 3, 5):
        np.testing.assert_array_equal(module.run(0, threads)[0], alone[0])


def test_of_nothing() -> None:
    x = constant(np.ones((3, 2)))
    none = ops.scatter_add(x, constant(np.zeros(0, np.int32)), constant(np.zeros((0, 2))))
    np.testing.assert_array_equal(value(none), np.ones((3, 2)))
    assert ops.take(x, constant(np.zeros(0, np.int32)), 0).shape == (0, 2)


X, AT = leaf("input", "x", (4, 6), "float32"), leaf("input", "at", (3,), "int32")


@pytest.mark.parametrize(("wrong", "parts"), [
    (lambda: ops.scatter_add(X, AT, X), ["(4, 6)", "(3, 6)", "take(x, indices, 0)"]),
    (lambda: ops.scatter_add(X, AT, ops.cast(X[:3], "float64")), ["float64", "float32"]),
    (lambda: ops.scatter_add(X, X, X), ["integer indices", "ops.cast"]),
    (lambda: ops.take_along_axis(X, AT), ["the same rank", "(3,)", "(4, 6)", "ops.take"]),
    (lambda: ops.take_along_axis(X, ops.cast(X, "bool")), ["integer indices, not bool"]),
    (lambda: ops.take(X, AT, 3), ["axis 3"]),
])
def test_errors_name_the_mismatch(wrong, parts) -> None:
    with pytest.raises(ShapeError) as caught:
        wrong()
    for part in parts:
        assert part in str(caught.value)


def test_one_hot_of_an_invalid_label_is_zero() -> None:
    y = ops.one_hot(constant([0, 5, -1], "int32"), 3)
    np.testing.assert_array_equal(evaluate([y], {})[0], [[1, 0, 0], [0, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize("serial", [False, True])
def test_composed_ops_are_expanded_too(serial: bool) -> None:
    """The gradient of a table with many rows sorts their numbers, by an op that machines lack, too."""
    table, ids = leaf("input", "t", (30522, 16), "float32"), leaf("input", "i", (4096,), "int32")
    [dt] = gradients(ops.sum(ops.take(table, ids, 0) ** 2), [table])
    graph = by_others(Graph({"y": dt}), serial)
    assert not [v for v in graph.nodes() if (v.op.serial if serial else v.op.others)]


@pytest.mark.parametrize("width", [(), (5,)])
def test_the_last_of_several_updates_stays(width: tuple[int, ...]) -> None:
    """No table of all updates is computed beside the result, only the number of each place's row."""
    x, rows = random.normal(size=(40, *width)), random.normal(size=(60, *width))
    places = random.integers(-3, 45, (60, 1))
    want = x.copy()
    for place, row in zip(places[:, 0], rows, strict=True):
        if -40 <= place < 40:
            want[place] = row
    args = [leaf("input", n, a.shape, d) for n, a, d in (
        ("x", x, "float64"), ("places", places, "int32"), ("rows", rows, "float64"))]
    y = ops.scatter_update(*args)
    slopes = gradients(ops.sum(y * y), [args[0], args[2]])
    got, of_x, of_rows = evaluate([y, *slopes], dict(zip(args, (x, places, rows), strict=True)))
    np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(of_x, 2 * np.where(want == x, x, 0))
    np.testing.assert_allclose((of_rows ** 2).sum(), 4 * (want[want != x] ** 2).sum())
    if width:
        tables = [v for v in topological([y]) if v.op.kind == "scatter"]
        assert all(v.size <= 40 for v in tables)
