"""Loops whose elements take their turns by themselves: which ones become one kernel, and that it makes
no difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.cases.grouping import together
from tests.cases.loops import LOOPS, LoopCase
from tests.parity import GROUPS, HERE, NARROW, Arrays, Job, Module, agree, interpreted, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.lower import tuning
from ztorch.lower.rewrites import independent
from ztorch.lower.rewrites.independent import as_recurrence
from ztorch.lower.rewrites.prepare import prepare
from ztorch.lower.rewrites.recurrence import RECURRENCE

CASES = {case.name: case for case in LOOPS}
RECURRENCES = ("sums", "backwards", "swapped", "counted", "escapes", "roots", "rows", "table", "inside")


def x(*shape: int) -> Value:
    return leaf("input", "x", shape, f32)


def kernels(y: Value, limits: Any = NARROW) -> tuple[list[str], int]:
    """The kinds of kernels, and how many loops are around them."""
    plan, _ = plan_of(Graph({"y": y}), limits)
    return [s.schedule.kind for s in plan.steps if s.schedule], len(plan.loops)


def job(case: LoopCase, gradient: bool = False) -> Job:
    leaves = case.leaves(f32)
    y = case.function(*leaves)
    roots = gradients(ops.sum(y * y), leaves) if gradient else [y]
    return Job(Graph({f"y{k}": v for k, v in enumerate(roots)}), case.feeds(leaves), case.name)


def off_and_on(monkeypatch: pytest.MonkeyPatch, run: Callable[[], list[Arrays]]) -> None:
    """The results are the same bits without the rule."""
    on = run()
    with monkeypatch.context() as patched:
        patched.setattr(independent, "RECURRENCE_VALUES", 0)
        off = run()
    for a, b in zip(on, off, strict=True):
        for got, want in zip(a, b, strict=True):
            np.testing.assert_array_equal(got, want)


@together()
@pytest.mark.parametrize("name", RECURRENCES)
def test_bits_are_those_of_a_loop_around_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [job(CASES[name], slope) for slope in (False, True)]
    off_and_on(monkeypatch, lambda: [interpreted(one, NARROW, workers=2) for one in jobs])

    def compiled() -> list[Arrays]:
        module = Module(jobs, HERE[-1])
        return [module.run(k, threads=2) for k in range(len(jobs))]

    off_and_on(monkeypatch, compiled)


@pytest.mark.parametrize("d", ["float16", "bfloat16", "int32", "uint8", "int64"])
def test_other_dtypes(d: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a = leaf("input", "a", (6, 37), d)
    one = Job(Graph({"y": ops.scan(lambda s, r: (ops.where(s > r, s - r, s + r), s * r), a[0], a)[1]}),
              {a: np.random.default_rng(1).integers(0, 9, a.shape).astype(a.dtype.working)})
    assert kernels(one.graph.outputs["y"])[1] == 0
    for limits in (NARROW, GROUPS):
        agree(one, interpreted(one, limits))
        off_and_on(monkeypatch, lambda limits=limits: [interpreted(one, limits)])


@pytest.mark.parametrize("limits", [NARROW, GROUPS], ids=["processor", "grid"])
@pytest.mark.parametrize("name", RECURRENCES)
def test_such_loops_are_one_kernel(name: str, limits: Any) -> None:
    kinds, loops = kernels(CASES[name].function(*CASES[name].leaves(f32)), limits)
    assert loops == 0 and sum("recurrence" in kind for kind in kinds) == 1


def test_the_gradient_of_such_a_loop_adds_one_kernel() -> None:
    for name in ("sums", "backwards", "roots", "rows"):
        plan, _ = plan_of(job(CASES[name], gradient=True).graph, NARROW)
        kinds = [s.schedule.kind for s in plan.steps if s.schedule]
        assert not plan.loops and kinds.count("recurrence") == 2, name
        assert len(kinds) <= (8 if name == "rows" else 5), name  # joining parts takes no kernel


def loop(f: Callable[..., Any], *shape: int) -> Value:
    rows = x(*shape)
    return ops.scan(f, rows[0], rows)[0]


REFUSED: dict[str, Value] = {
    "a product": loop(lambda s, r: (s @ r, None), 4, 5, 5),
    "a sum of all elements": loop(lambda s, r: (s + ops.sum(s * r), None), 4, 7),
    "another element's state": loop(lambda s, r: (ops.flip(s) + r, None), 4, 7),
    "a state at a computed place": loop(
        lambda s, r: (ops.take(s, ops.cast(ops.abs(r), "int32") % 7, 0), None), 4, 7),
    "states of two sizes": ops.concat(*ops.scan(
        lambda s, r: ((s[0] + r, s[1] * r[1]), None), (x(4, 7)[0], x(4, 7)[:3, 0]), x(4, 7))[0]),
    "all elements go on while one does": ops.while_loop(
        lambda s: ops.any(s < 2.0), lambda s: s + 0.5, x(7), max_steps=9),
    "a condition of the sum": CASES["while"].function(x(6)),
    "a single turn": loop(lambda s, r: (s + r, None), 1, 7),
}


def test_other_loops_remain_loops_around_kernels() -> None:
    """All in one test, as they take milliseconds and the inner loop should see each."""
    for name, refused in REFUSED.items():
        kinds, loops = kernels(refused)
        assert loops == 1 and not any("recurrence" in kind for kind in kinds), name


def test_finished_elements_run_no_iterations() -> None:
    """Without the `while` of the kernel, the interpreter would take hours."""
    one = Job(Graph({"y": ops.while_loop(
        lambda s: ops.any(s < 3.0), lambda s: ops.where(s < 3.0, s + 1.0, s), x(9),
        max_steps=10**9)}), {})
    [a] = one.graph.leaves("input")
    for limits in (NARROW, GROUPS):
        fed = Job(one.graph, {a: np.linspace(-2.0, 4.0, 9, dtype=np.float32)})
        agree(fed, interpreted(fed, limits))


def test_bodies_of_many_values() -> None:
    """Python recurses for none of a long chain."""
    def chain(length: int) -> Value:
        def turn(s: Value, r: Value) -> tuple[Value, None]:
            for _ in range(length):
                s = s * 0.5 + r
            return s, None

        return loop(turn, 3, 4)

    assert kernels(chain(tuning.RECURRENCE_VALUES // 2 - 9))[1] == 0
    many = chain(tuning.RECURRENCE_VALUES // 2)
    [node] = [v for v in prepare(Graph({"y": chain(2)}), NARROW).nodes() if v.op is RECURRENCE]
    assert node.attrs["recurrence"].slots > 2
    assert as_recurrence(many.args[0], {0}, (), NARROW) is None


def test_constants_of_bodies() -> None:
    """Arrays in a body, and in the body of a loop inside it."""
    numbers = np.linspace(0.1, 0.9, 11, dtype=np.float32)

    def turn(s: Value, r: Value) -> tuple[Value, None]:
        inner, _ = ops.scan(lambda d, _: (d * numbers[::-1].copy() + s, None), r, length=3)
        return inner * numbers, None

    one = Job(Graph({"y": loop(turn, 4, 11)}), {})
    [a] = {*one.graph.leaves("input")}
    fed = Job(one.graph, {a: np.random.default_rng(3).normal(size=a.shape).astype(np.float32)})
    assert kernels(one.graph.outputs["y"]) == (["recurrence"], 0)
    agree(fed, interpreted(fed, NARROW))


@pytest.mark.parametrize("limits", [NARROW, GROUPS], ids=["narrow", "groups"])
def test_a_sequence_of_stacked_numbers(limits: Any) -> None:
    """Numbers that are stored in turns, and a gradient that is zero but for the last iteration."""
    s = leaf("input", "s", (), f32)
    numbers = [ops.reshape(ops.sin(s * k), (1,)) for k in range(1, 4)]
    last, kept = ops.scan(lambda c, r: (c * 0.5 + r, c * r), s, ops.concat(*numbers, axis=0))
    _, same = ops.scan(lambda c, _: (c, ops.sin(s)), s, length=3)
    [slope] = gradients(same[-1], [s])
    one = Job(Graph({"last": last, "kept": kept, "slope": slope}), {s: np.float32(0.3)})
    c, want = 0.3, []
    for r in np.sin(0.3 * np.arange(1, 4)):
        want.append(c * r)
        c = c * 0.5 + r
    for got in (interpreted(one, limits), Module([one], HERE[-1]).run(0)):
        for a, b in zip(got, (c, want, np.cos(0.3)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_state_is_written_in_place() -> None:
    """Particles that are states of the program: the kernel reads each before it writes it."""
    place = leaf("state", "place", (40,), f32, np.linspace(0, 1, 40, dtype=np.float32))
    last, _ = ops.scan(lambda s, _: (s + ops.sin(s) * 0.1, None), place, length=6)
    one = Job(Graph({}, {"place": last}), {place: np.linspace(0, 1, 40)})
    plan, _ = plan_of(one.graph, NARROW)
    assert len(plan.steps) == 1 and len(plan.steps[0].locations) == 1
    agree(one, interpreted(one, NARROW, workers=3))


def test_a_sequence_is_updated_in_place_after_its_readers() -> None:
    rows = leaf("state", "rows", (5, 40), f32, np.zeros((5, 40), np.float32))
    _, (new, old) = ops.scan(lambda s, r: (s * 0.5, (s, r)), ops.full((40,), 0.5, f32), rows)
    one = Job(Graph({"old": old}, {"rows": new}),
              {rows: np.random.default_rng(4).normal(size=(5, 40)).astype(np.float32)})
    plan, _ = plan_of(one.graph, NARROW)
    assert [s.writes for s in plan.steps] == [(True, False, True)]  # rows, the first state, `old`
    agree(one, interpreted(one, NARROW, workers=2))


@pytest.mark.parametrize(("shape", "schedule"), [
    ((9, 100), "recurrence lanes(8) vectors(4)"), ((9, 3), "recurrence lanes(2) vectors(1)"),
    ((9, 1024), "recurrence lanes(8) vectors(8)"), ((9, 16), "recurrence lanes(8) vectors(2)")])
def test_vectors_side_by_side(shape: tuple[int, int], schedule: str) -> None:
    last, kept = ops.scan(lambda s, r: (s * 0.5 + r, s), x(*shape)[0], x(*shape))
    plan, _ = plan_of(Graph({"y": kept, "z": last}), TARGETS["avx2"].limits)
    assert [repr(s.schedule) for s in plan.steps] == [schedule]


# -- results whose turns are adjacent ----------------------------------------------------------


def running(a: Value, reverse: bool = False, heavy: bool = False) -> list[Value]:
    """The last states and all of them, of the rows of a tensor, along its last axis."""
    axes = tuple(range(a.rank))
    rows = ops.transpose(a, (axes[-1], *axes[:-1]))
    last, kept = ops.scan(lambda s, r: ((ops.tanh(s * 0.5) + r if heavy else s * 0.5 + r),) * 2,
                          ops.full(a.shape[:-1], 0.25, f32), rows, reverse=reverse)
    return [last, ops.transpose(kept, (*axes[1:], 0))]


@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 9), (1, 6), (9, 1)])
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_are_computed_number_by_number(shape: tuple[int, ...], reverse: bool) -> None:
    a = x(*shape)
    y = running(a, reverse)
    slope = gradients(ops.sum(y[1] * y[1]) + ops.sum(y[0]), [a])
    numbers = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    state, want = np.full(shape[:-1], 0.25), np.zeros(shape)
    for t in sorted(range(shape[-1]), reverse=reverse):
        want[..., t] = state = state * 0.5 + numbers[..., t]
    for limits in (NARROW, GROUPS, TARGETS["avx2"].limits):
        one = Job(Graph({"last": y[0], "kept": y[1], "slope": slope[0]}), {a: numbers})
        got = interpreted(one, limits, workers=2)
        agree(one, got)
        np.testing.assert_allclose(got[1], want, rtol=1e-5, atol=1e-5)


def test_which_rows_are_computed_number_by_number() -> None:
    def schedules(*roots: Value) -> list[str]:
        plan, _ = plan_of(Graph({str(k): v for k, v in enumerate(roots)}), TARGETS["avx2"].limits)
        return [repr(s.schedule) for s in plan.steps if s.schedule]

    assert schedules(*running(x(40, 30))) == ["recurrence lanes(1) vectors(4)"]
    assert schedules(*running(x(2, 30))) == ["recurrence lanes(1) vectors(2)"]
    in_vectors = "recurrence lanes(8) vectors(4)"
    kept = running(x(40, 30))[1]
    for roots in ((running(x(40, 30), heavy=True)[1],),  # computing takes longer than turning
                  (kept, kept.args[0]),  # it is read in both orders
                  (running(ops.transpose(x(30, 40), (1, 0)))[1],)):  # a turn's numbers are neighbors
        assert in_vectors in schedules(*roots), roots


@pytest.mark.parametrize("shape", [(37, 21), (3, 21), (4, 3)])
def test_rows_in_compiled_code(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    a = x(*shape)
    one = Job(Graph({f"y{k}": v for k, v in enumerate(running(a))}),
              {a: np.random.default_rng(6).normal(size=shape).astype(np.float32)})

    def compiled() -> list[Arrays]:
        return [Module([one], HERE[-1]).run(0, threads=2)]

    on = compiled()
    monkeypatch.setattr(independent, "RECURRENCE_ROW_SLOTS", 0)
    for got, want in zip(on[0], compiled()[0], strict=True):
        np.testing.assert_array_equal(got, want)
    agree(one, on[0])
