"""Writes of several iterations to one place: they happen in order, as in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from tests.parity import NARROW, Job, agree, interpreted
from ztorch.errors import KernelError
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph


@zt.kernel
def overlapping(x):
    out = np.zeros(24, np.float32)
    for h in range(4):
        for d in range(8):  # the places of two h overlap: the order counts
            out[4 * h + d] = out[4 * h + d] * 0.5 + x[h, d]
    return out


def test_places_that_iterations_share_are_written_in_order() -> None:
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    expected = np.zeros(24, np.float32)
    for h in range(4):
        expected[4 * h:4 * h + 8] = expected[4 * h:4 * h + 8] * 0.5 + x[h]
    np.testing.assert_array_equal(overlapping(x), expected)


@zt.kernel
def overlapping_slices(x):
    out = np.zeros(24, np.float32)
    for h in range(4):
        out[4 * h:4 * h + 8] = out[4 * h:4 * h + 8] * 0.5 + x[h]
    return out


@zt.kernel
def overlapping_steps(x):
    out = np.zeros(24, np.float32)
    for h in range(4):
        d = 0
        while d < 8:
            out[4 * h + d] = out[4 * h + d] * 0.5 + x[h, d]
            d += 1
    return out


@pytest.mark.parametrize("kernel", [overlapping_slices, overlapping_steps])
def test_shared_places_of_slices_and_steps(kernel: Any) -> None:
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    np.testing.assert_array_equal(kernel(x), overlapping(x))


@zt.kernel
def overlapping_triangle(x):
    out = np.zeros(24, np.float32)
    for h in range(4):
        for d in range(h, 8):
            out[4 * h + d] = out[4 * h + d] * 0.5 + x[h, d]
    return out


def test_shared_places_of_inner_loops_of_other_lengths() -> None:
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    np.testing.assert_array_equal(overlapping_triangle(x), overlapping_triangle.debug(x))


@zt.kernel(max_steps=8)
def steps_that_overwrite(x, p):
    line = np.full(25, 0.5)
    for i in range(4):
        k = 0
        while k < 4:
            line[3 + 2 * i + k] = x[i, k]
            k += 1
    return line


@zt.kernel
def places_of_data(x, p):
    line = np.full(25, 0.5)
    for i in range(4):
        level = 0.0
        for k in range(5):
            level = level * 0.5 + x[i, k]
            line[p[i] + k] = level
    return line


@zt.kernel
def changed_places_of_data(x, p):
    line, table, level = np.full(25, 0.5), np.zeros((6, 5)), 0.0
    for k in range(5):
        level = level * 0.5 + x[0, k]
        place = p[k % 4]
        if level > 0.2:
            place = place + 1
        line[place + k] = level
        table[p[k % 4], k] = level
    return line, table


@zt.kernel
def terms_that_read_the_element(x, p):
    line = np.full(25, 0.5)
    for i in range(4):
        for k in range(i + 1):
            line[i] += line[i] * x[i, k]
    return line


@zt.kernel
def a_counter_times_zero(x, p):
    line = np.ones(25)
    for k in range(5):
        for q in range(k + 1):
            line[k + q * 0] = line[k + q * 0] * 0.5 + x[0, k]
    return line


@zt.kernel
def products_of_counters(x, p):
    line, others, step = np.ones(25), np.ones(25), p[0] - p[0]
    for i in range(4):
        line[i * (3 - i)] = line[i * (3 - i)] * 0.5 + x[i, 0]
    for i in range(4):
        others[i * step] = others[i * step] * 0.5 + x[i, 1]
    return line, others


@zt.kernel
def a_product_that_is_zero(x, p):
    line = np.zeros(25)
    for i in range(3, -1, -1):
        for k in range(4, -1, -1):
            line[(i * k) % 25] = 1.5 * x[0, k]
    return line


@zt.kernel
def counters_of_earlier_loops(x, p):
    """The second loop over i knows k and q from the first one, and must not believe them."""
    line = np.zeros(25)
    for i in range(2):
        for k in range(3):
            for q in range(k + 1):
                if x[i, k] <= 0.1:
                    break
                line[k + q * 0] = line[k + q * 0] * 0.5 + 1.0
    return line


@zt.kernel
def sums_of_a_slice(x, p):
    line = np.full(25, 0.5)
    for i in range(4):
        line[3 * i] = line[3 * i:3 * i + 5].sum() * 0.25 + x[i, 1]
    return line


@zt.kernel
def constants_that_are_added(x, p):
    out = np.zeros((4, 5))
    for i in range(4):
        for _ in range(4):
            total = 0
            for j in range(4, -1, -1):
                low = -0.5
                for q in range(5):
                    total = min(low * x[i, q], total)
                out[i, j] += max(1.0, 2.0)
                total += j
    return out


@zt.kernel
def arrays_of_each_iteration(x, p):
    """Each writes where its own number says."""
    out = np.zeros((4, 9))
    for i in range(4):
        row = np.zeros(9)
        for k in range(i, 5):
            row[i] += x[i, k]
        row[i + 1] = max(row[i + 1], x[i, 0])
        row[2 * i] = row[2 * i] * 0.5 + x[i, 1]
        out[i] = row
    return out


@zt.kernel
def written_out_loops(x, p):
    """Loops of few iterations, whose writes are statements of their own."""
    marks, line, plane = np.zeros(9), np.zeros(9), np.ones(9)
    for i in range(5):
        for k in range(2):
            marks[i + k] = p[k] + i
            plane[i + k] = plane[i + k] * 0.5 - x[i % 4, k]
    for i in range(4):
        row = np.zeros(6)
        for k in range(3):
            row[k + 1] = row[k] * 0.5 + x[i, k]
            line[i + k] = row[k + 1]
    return marks, line, plane


@zt.kernel
def counters_that_may_stay(x, p):
    """A counter of before, of a loop that may be empty: nothing reads it."""
    out, level = np.zeros(9), 0.0
    for k in range(3):
        out[k] = x[0, k]
    for i in range(6):
        for k in range(i, 5):
            out[k] += x[1, k]
        level = level * 0.5 + x[2, 0]
        out[i] += level
    return out


ALIKE = [steps_that_overwrite, places_of_data, changed_places_of_data, terms_that_read_the_element,
         a_counter_times_zero, products_of_counters, a_product_that_is_zero, counters_of_earlier_loops, sums_of_a_slice,
         constants_that_are_added, arrays_of_each_iteration, written_out_loops, counters_that_may_stay]


@together()
@pytest.mark.parametrize("kernel", ALIKE, ids=lambda k: k.source.name)
def test_as_plain_python(kernel: Any) -> None:
    for seed in range(4):
        random = np.random.default_rng(seed)
        x, p = random.uniform(-1, 1, (4, 5)), random.integers(0, 5, 4).astype(np.int32)
        values, expected = kernel(x, p), kernel.debug(x, p)
        for y, z in zip(values, expected, strict=True) if isinstance(values, tuple) else [(values, expected)]:
            np.testing.assert_allclose(y, z, rtol=1e-12, atol=1e-12)


@zt.kernel
def rows_that_overwrite(p):
    line = np.zeros(25, np.int32)
    for i in range(4):
        total = 0
        for k in range(p[i]):
            line[2 * i + k] = i * 100 + k
            total += k
        line[p[i] + 20] = i * 10 + total
    return line


def test_rows_of_data_do_not_race() -> None:
    """The interpreter finds races."""
    p, values = leaf("input", "p", (4,), "int32"), np.array([4, 3, 4, 3], np.int32)
    job = Job(Graph({"y": rows_that_overwrite(p)}), {p: values})
    [y] = interpreted(job, NARROW)
    np.testing.assert_array_equal(y, rows_that_overwrite.debug(values))
    agree(job, [y])


K = 7.0


@zt.kernel
def a_local_name(x):
    out = np.zeros(4)
    for i in range(4):
        if x[i, 0] > 0:
            K = 3.0
        out[i] = K
    return out


def test_names_that_a_function_sets_are_its_own() -> None:
    """As in Python: a name of the module does not stand in for it."""
    with pytest.raises(KernelError, match="K has no value here: it is set only inside a loop or a branch"):
        a_local_name(np.ones((4, 5)))


@zt.kernel
def rows_that_share_their_first_places(x, p):
    out = np.zeros((5, 5))
    for i in zt.grid(4):
        for k in range(p[i]):
            out[k, 0] = x[i, k]
    return out


def test_rows_without_order_that_meet_are_an_error() -> None:
    with pytest.raises(KernelError, match="several iterations of i write the same element of out"):
        rows_that_share_their_first_places(np.ones((4, 5)), np.ones(4, np.int32))
