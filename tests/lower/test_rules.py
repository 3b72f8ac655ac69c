"""Proposals of the rules of lowering, on both sides of each threshold."""

from __future__ import annotations

import numpy as np

from tests.cases.proposals import AVX2, proposed, x
from tests.parity import plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.text import show
from ztorch.lower import tuning
from ztorch.lower.locations import Location
from ztorch.lower.order import ordered
from ztorch.lower.rewrites.frozen import Derived
from ztorch.machines.processors import ANY


def test_large_copies_of_inputs_run_right_before_their_readers() -> None:
    """Region 0 reads no value of the arena, and 2 is the first that reads its result."""
    def order(*shape: int) -> list[int]:
        a, b, c = x(*shape), x(2, 3), x(2, 4)
        return ordered({0: [], 1: [], 2: [0, 1]}, {0: (), 1: (), 2: (a, b)}, {0: (a,), 1: (b,), 2: (c,)})

    assert order(128, 128) == [1, 0, 2]
    assert order(128, 127) == [0, 1, 2]


# -- elementwise and reducing loops ----------------------------------------------------------------


def test_rows_are_summed_side_by_side_where_they_are_long_and_cheap() -> None:
    assert "sums(4)" in proposed(ops.sum(x(5, 64), axis=1))
    assert "sums(1)" in proposed(ops.sum(x(5, 63), axis=1))  # less than eight vectors
    assert "sums(1)" in proposed(ops.sum(ops.exp(x(5, 64)), axis=1))  # work hides the latency


def test_expensive_elements_fill_several_vectors() -> None:
    assert "lanes(32)" in proposed(ops.erf(x(64)))
    assert "lanes(16)" in proposed(ops.erf(x(50)))  # six vectors are three times two
    assert "lanes(8)" in proposed(ops.erf(x(40)))
    assert "lanes(8)" in proposed(ops.exp(x(64)))


def test_a_pass_that_only_computes_prefetches_the_next_row() -> None:
    """Of 1.2 MB, which the L2 cache does not hold; a quotient by the sum has no such pass. What comes
    from memory, the processor fetches well enough, unless the pass takes long."""
    def prefetches(y: Value) -> bool:
        return "prefetch" in show(plan_of(Graph({"y": y}), AVX2)[0].steps[-1].kernel)

    large, small = x(300, 1024), x(64, 1024)
    assert prefetches(ops.softmax(large)) and not prefetches(ops.softmax(small))
    assert not prefetches(large / ops.sum(large, axis=1, keepdims=True))

    def norm(y: Value) -> Value:
        far = y - ops.mean(y, 1, keepdims=True)
        return far * ops.rsqrt(ops.mean(far * far, 1, keepdims=True))

    largest = x(2000, 1024)
    assert prefetches(norm(large)) and not prefetches(norm(largest)) and prefetches(ops.softmax(largest))


def test_columns_are_reduced_together_while_iterations_are_left() -> None:
    assert "columns(4)" in proposed(ops.sum(x(3, 9, 32), axis=1))
    assert "columns(2)" in proposed(ops.sum(x(3, 9, 16), axis=1))
    assert "columns(1)" in proposed(ops.sum(x(9, 16), axis=0))  # workers share the columns themselves
    assert "columns(2)" in proposed(ops.sum(x(9, 32), axis=0))
    assert "columns(4)" in proposed(ops.sum(x(9, 64), axis=0))


def test_vectors_hold_few_channels() -> None:
    wide = TARGETS["avx512"].limits
    for channels, lanes in ((3, 4), (6, 8), (8, 8), (9, 16), (40, 16)):
        assert f"lanes({lanes})" in repr(plan_of(Graph({"y": ops.sum(x(9, channels), axis=0)}), wide)[0].steps[-1].schedule)


def test_workers_share_enough_axes_to_be_busy() -> None:
    def exchanged(first: int, second: int) -> str:
        return proposed(ops.exp(ops.transpose(x(second, first, 128), (1, 0, 2))))

    assert "share(1)" in exchanged(64, 3)
    assert "share(2)" in exchanged(63, 3)  # too few turns in one axis
    assert "share(1)" in exchanged(64, 8) and "share(2)" in exchanged(64, 9)  # 1,024 elements a turn


def test_axes_are_exchanged_by_tiles_from_four_elements_on() -> None:
    assert proposed(ops.exp(ops.transpose(x(5, 4)))).startswith("transpose")
    assert proposed(ops.exp(ops.transpose(x(5, 3)))).startswith("elements")
    assert proposed(ops.exp(ops.transpose(x(4, 5)))).startswith("transpose")
    assert proposed(ops.exp(ops.transpose(x(3, 5)))).startswith("elements")


def test_a_long_epilogue_is_a_loop() -> None:
    def after(count: int, k: int) -> str:
        y = ops.matmul(x(24, k), leaf("input", "b", (k, 32), f32))
        for _ in range(count):
            y = ops.tanh(y)
        return proposed(y)

    assert "inline=1" in after(0, 300) and "inline=1" in after(4, 255)
    assert "inline=0" in after(5, 255) and "inline=0" in after(4, 256)


def test_long_reductions_take_two_steps() -> None:
    def steps(results: int, each: int) -> int:
        return len(plan_of(Graph({"y": ops.sum(x(results, each), axis=1)}), AVX2)[0].steps)

    assert (steps(1, 1 << 15), steps(1, (1 << 15) - 64)) == (2, 1)
    assert (steps(64, 1 << 15), steps(65, 1 << 15)) == (2, 1)


def test_expensive_values_are_stored_between_passes() -> None:
    """The exponential of a softmax is; a difference is computed again."""
    def stored(y: Value) -> int:
        [step] = plan_of(Graph({"y": y}), AVX2)[0].steps
        return sum(m.space == "local" for m in step.kernel.memories)

    far = x(4, 64) - ops.mean(x(4, 64), -1, keepdims=True)
    assert stored(far * ops.sum(far * far, -1, keepdims=True)) == 0
    for count in (tuning.RECOMPUTE_SLOTS, tuning.RECOMPUTE_SLOTS + 1):
        row = x(4, 64)
        for _ in range(count):
            row = row + 1.0
        assert row.op.cost == 1
        assert stored(row * ops.sum(row, -1, keepdims=True)) == count - tuning.RECOMPUTE_SLOTS
    slow = ops.exp(x(4, 64))
    assert stored(ops.sqrt(slow) + ops.sum(slow, -1, keepdims=True)) == 1


def test_a_kernels_time_is_the_maximum_of_compute_and_transfer() -> None:
    [moving] = plan_of(Graph({"y": x(4096) + 1.0}), AVX2)[0].steps
    assert moving.cycles == 2 * 4096 * 4 / ANY.outer_bytes_per_cycle
    [dear] = plan_of(Graph({"y": ops.exp(ops.exp(ops.exp(x(4096))))}), AVX2)[0].steps
    assert dear.cycles == 3 * 4096 * ops_cost("exp") / (2 * 8) > moving.cycles


def ops_cost(name: str) -> int:
    return ops.exp(x(1)).op.cost if name == "exp" else 1


def test_buffers_that_touch_do_not_overlap() -> None:
    first, second = Location("arena", 0, 64), Location("arena", 64, 64)
    assert not first.overlaps(second) and not second.overlaps(first)
    assert first.overlaps(Location("arena", 63, 1)) and not first.overlaps(Location("params", 0, 64))
    assert Location("inputs", 1, 8).overlaps(Location("inputs", 1, 4))


def test_states_without_later_readers_are_updated_in_place() -> None:
    w = leaf("state", "w", (40, 40), f32, np.zeros((40, 40), np.float32))
    plan, params = plan_of(Graph({}, {"w": w * 2.0}), AVX2)
    [step] = plan.steps
    assert [loc.offset for loc in step.locations] == [params.offsets["w"]] and step.writes == (True,)


def test_workers_wait_before_overwriting_values_that_others_read() -> None:
    w = leaf("state", "w", (40, 40), f32, np.zeros((40, 40), np.float32))
    y = ops.matmul(leaf("input", "a", (40, 40), f32), w)
    steps = plan_of(Graph({"y": y}, {"w": w * 2.0}), AVX2)[0].steps
    assert [s.barrier for s in steps] == [False, True]
    apart = plan_of(Graph({"y": ops.matmul(x(40, 40), x(40, 40)), "z": ops.exp(x(50))}), AVX2)[0].steps
    assert [s.barrier for s in apart] == [False, False]


def test_values_of_constant_weights_are_computed_once_if_not_larger() -> None:
    w = leaf("state", "w", (40, 40), f32, np.zeros((40, 40), np.float32))

    def derived(made: Value) -> list[Value]:
        states = Derived()
        states.take(Graph({"y": ops.matmul(x(3, 40), made)}))
        return list(states.updates.values())

    assert [v.shape for v in derived(ops.exp(w))] == [(40, 40)]
    assert not derived(ops.matmul(w[:, :1], w[:1]))  # twenty times as large
