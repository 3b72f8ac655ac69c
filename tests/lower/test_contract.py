"""The schedule of matrix products, and every small size against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases.covering import full, pairs
from tests.parity import HERE, NARROW, WIDE, Job, Module, agree, compiled, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import DType, f32, f64
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.left_operand import AccessPattern, Run, access_pattern, split
from ztorch.lower.cpu.tiling import choose, tiling

MACHINES = [WIDE, NARROW, Limits(256, 16, True), Limits(128, 32, True)]


def covered(runs: tuple[Run, ...]) -> list[int]:
    return [g * r.period + r.start + k * r.size + n
            for r in runs for g in range(r.repeats) for k in range(r.count) for n in range(r.size)]


@given(st.integers(1, 3000), st.integers(1, 40))
def test_split_covers_everything_once(total: int, most: int) -> None:
    runs = split(total, most)
    assert covered(runs) == list(range(total))
    sizes = {r.size for r in runs}
    assert max(sizes) <= most and max(sizes) - min(sizes) <= 1
    assert sum(r.count for r in runs) == -(-total // most)  # no more tiles than needed


def test_a_partial_vector_is_a_separate_panel() -> None:
    tiles = tiling(4, 2, 8, 5 * 8 + 3, 8)
    assert covered(tiles.panels) == [0, 1, 2, 3, 4, 5] and tiles.tail == 3
    assert tiles.panels[-1].count == 1 and covered(tiles.panels[-1:])[-1] == 5


def test_tiles_have_several_panels_of_a_narrow_packed_operand() -> None:
    """All functions of a program read weights that are packed once, for the one with most rows."""
    wide = WIDE
    one_row = choose(1, 1536, 384, wide, f32, packed=True, panel=1)
    assert (one_row.tile_vectors, one_row.unroll) == (16, 4)
    assert choose(1, 1536, 384, wide, f32, packed=True, panel=3).tile_vectors == 15
    # Hardware prefetches for a load whose addresses are at most 1 KiB apart.
    assert choose(1, 1536, 384, wide, f32, packed=True, panel=16).unroll == 1


sizes = st.one_of(st.integers(1, 70), st.integers(1, 2000))


@settings(max_examples=150, deadline=None)
@given(sizes, sizes, sizes, st.sampled_from(MACHINES), st.sampled_from((f32, f64)), st.booleans())
def test_tilings_cover_exactly_and_fit_the_registers(m: int, n: int, k: int, limits: Limits,
                                                     d: DType, packed: bool) -> None:
    s = choose(m, n, k, limits, d, packed)
    tiles = tiling(s.tile_rows, s.tile_vectors, m, n, limits.lanes(d), packed)
    vectors = -(-n // tiles.lanes)
    assert tiles.lanes == limits.lanes(d) and tiles.tail == n % tiles.lanes
    assert covered(tiles.rows) == list(range(m))
    assert sorted(covered(tiles.panels)) == list(range(vectors))
    for r, p in itertools.product(tiles.rows, tiles.panels):
        loaded = p.size if r.size > 1 else 0
        assert r.size * p.size + loaded + 1 <= limits.vector_registers
    masked = [p for p in tiles.panels if tiles.tail and vectors - 1 in covered((p,))]
    assert all(p.count == 1 for p in masked)  # whole panels pay for no mask


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 30), st.integers(2, 40), sizes, sizes, st.sampled_from(MACHINES),
       st.sets(st.integers(2, 16)).map(lambda s: (1, *sorted(s))))
def test_tiles_stay_within_evenly_spaced_rows(period: int, count: int, n: int, k: int,
                                              limits: Limits, even: tuple[int, ...]) -> None:
    """But for tiles that lie the same access wherever they begin."""
    m = period * count
    access = AccessPattern((k,), even, period, m * k)
    s = choose(m, n, k, limits, f32, access=access)
    assert s.tile_rows in access.heights and (s.tile_rows <= period or s.tile_rows in even)
    tiles = tiling(s.tile_rows, s.tile_vectors, m, n, limits.lanes(f32), access=access)
    assert sorted(covered(tiles.rows)) == list(range(m))
    if s.tile_rows not in even:
        for r in tiles.rows:
            assert (r.repeats, r.period) == (count, period) and r.start + r.count * r.size <= period


def windows(side: int, channels: int, size: int, **how: int) -> Value:
    """Windows of three images as rows of a matrix."""
    x = leaf("input", "x", (3, side, side, channels), f32)
    seen = ops.windows(x, (1, 2), size, **how)
    seen = ops.transpose(seen, (0, 1, 2, 4, 5, 3))
    return ops.reshape(seen, (-1, size * size * channels))


def test_windows_are_read_in_place() -> None:
    """Eight windows of a row of an image lie evenly, and two rows of them lie the same access in every
    tile of sixteen."""
    rows = windows(10, 5, 3)
    access = access_pattern(rows)
    assert access is not None and (access.depths, access.period, access.elements) == ((3, 15), 8, 1500)
    assert access.even == (1, 2, 4, 8, 16) and access.heights == (*range(1, 9), 16)
    turned = access_pattern(ops.transpose(rows))  # of the gradient: each place meets all images
    assert turned is not None and (turned.depths, turned.period) == ((3, 8, 8), 15)
    apart = access_pattern(windows(11, 2, 3, dilation=2, stride=2))
    assert apart is not None and apart.depths == (3, 3, 2)


def test_a_matrix_is_read_in_tiles_of_any_height() -> None:
    for v in (leaf("input", "a", (40, 12), f32), ops.transpose(leaf("input", "a", (12, 40), f32))):
        access = access_pattern(v)
        assert access is not None and access.depths == (12,) and access.heights == tuple(range(1, 17))


@pytest.mark.parametrize(("channels", "shift"), [(1, 1), (3, 3), (4, 4), (5, 5)])
def test_tiles_leave_registers_for_shared_window_elements(channels: int, shift: int) -> None:
    """Up to three channels, a window reads in the same iteration the elements of the one before it."""
    limits = Limits(256, 16, True)
    rows = windows(34, channels, 3)
    access = access_pattern(rows)
    assert access is not None and access.shift == shift
    s = choose(rows.shape[0], 64, rows.shape[1], limits, f32, access=access)
    used = s.tile_rows * s.tile_vectors + s.tile_vectors + 1
    assert access.shared_registers(s.tile_rows) == (s.tile_rows - 1 if channels < 4 else 0)
    assert used + access.shared_registers(s.tile_rows) <= 16 - (s.prefetch == 0)
    assert (s.tile_rows, s.tile_vectors) == ((4, 3) if channels >= 4 else (4, 2))
    turned = access_pattern(ops.transpose(leaf("input", "a", (12, 40), f32)))
    assert turned is not None and turned.shift == 0


def product(m: int, n: int, k: int, d: DType = f32) -> Job:
    """Several products of one size: plain, with each operand transposed, with an epilogue that asks
    where it is, and in a batch."""
    rng = np.random.default_rng(m * 10_000 + n * 100 + k)
    a, b = leaf("input", "a", (m, k), d), leaf("input", "b", (k, n), d)
    at, bt = leaf("input", "at", (k, m), d), leaf("input", "bt", (n, k), d)
    z = leaf("input", "z", (m, (n + 1) // 2), d)
    three = leaf("input", "three", (3, k, n), d)
    padded = ops.pad(z, (0, 0), (0, n - z.shape[1]))
    graph = Graph({
        "plain": ops.matmul(a, b), "left": ops.matmul(ops.transpose(at), b),
        "right": ops.matmul(a, ops.transpose(bt)),
        "epilogue": ops.relu(ops.matmul(a, b) + padded),
        "batch": ops.matmul(ops.broadcast_to(a, (3, m, k)), three)})
    feeds = {v: rng.normal(size=v.shape).astype(v.dtype.numpy) for v in (a, b, at, bt, z, three)}
    return Job(graph, feeds, f"{m}x{n}x{k}")


@pytest.mark.parametrize(("m", "limits"), pairs((3, 1, 2, 5, 9), (NARROW, WIDE)),
                         ids=lambda v: v if isinstance(v, int) else f"{v.vector_bits} bits")
def test_every_remainder_interpreted(m: int, limits: Limits) -> None:
    """Of columns, remainders and whole vectors of either width; of the depth, less than a step of the loop,
    one, and a remainder."""
    for n, k in itertools.product((1, 3, 4, 5, 8, 16, 17), (1, 4, 5)):
        job = product(m, n, k)
        agree(job, interpreted(job, limits, workers=2), terms=k)


SWEEP = [(m, n, k) for m, n, k in itertools.product(range(1, 41), repeat=3)
         if (m * 7 + n * 3 + k) % 160 == 0]  # thinly, but every m, n and k with many others


def check(chosen: list[tuple[int, int, int]], target: str, d: DType = f32) -> None:
    every = [product(*size, d) for size in chosen]
    module = Module(every, target)
    for number, job in enumerate(every):
        agree(job, module.run(number, 1 + number % 3), terms=chosen[number][2])


def test_some_sizes() -> None:
    check(SWEEP[::60], HERE[-1])


@pytest.mark.slow
@pytest.mark.parametrize(("part", "target"), pairs(range(4), HERE))
def test_sweep(part: int, target: str) -> None:
    check(SWEEP[part::48 if full() else 96], target, f64 if part == 3 else f32)


def test_the_sweep_covers_every_size() -> None:
    for axis in range(3):
        assert {s[axis] for s in SWEEP} == set(range(1, 41))


@pytest.mark.parametrize("target", HERE)
def test_larger_products(target: str) -> None:
    """Large enough for several panels, blocks of rows and packing."""
    rng = np.random.default_rng(3)
    a, b = leaf("input", "a", (523, 130), f32), leaf("input", "b", (130, 515), f32)
    w = leaf("state", "w", (300, 257), f32)
    c = leaf("input", "c", (65, 300), f32)
    job = Job(Graph({"ab": ops.matmul(a, b), "cw": ops.tanh(ops.matmul(c, w))}),
              {v: rng.normal(size=v.shape).astype(np.float32) for v in (a, b, c, w)})
    module = Module([job], target)
    for threads in (1, 2):
        agree(job, module.run(0, threads), terms=150)


@pytest.mark.parametrize("rows", [67, 701])
def test_large_operands_of_epilogues_are_prefetched(rows: int) -> None:
    """At odd sizes, into the L2 cache; operands that it holds are not."""
    rng = np.random.default_rng(4)
    shapes = {"a": (rows, 3), "b": (3, 1031), "c": (rows, 1031), "d": (rows, 1031), "bias": (1031,)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    a, b, c, d, bias = leaves = [leaf("input", name, x.shape, f32) for name, x in arrays.items()]
    job = Job(Graph({"y": ops.sqrt(ops.abs(ops.matmul(a, b) - c)) * d + bias}),
              dict(zip(leaves, arrays.values(), strict=True)))
    for target in HERE[-2:]:
        [step] = plan_of(job.graph, TARGETS[target].limits)[0].steps
        large = {m.name for m in step.kernel.memories if m.size == rows * 1031}
        prefetched = {i.attrs["mem"] for i in step.kernel.body if i.opcode == "prefetch"} & large
        assert len(prefetched) == (2 if rows == 701 else 0)
        agree(job, compiled(job, target), terms=10)
