"""Attention by matrix instructions, whose scores are elements that threads know the places of."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.attention import fed, job, off
from tests.machines.ptx.parse import parse
from tests.machines.ptx.running import rendered, run
from tests.machines.ptx.tensor import place_of_a, place_of_c
from tests.parity import Job, buffers_of, interpreted, plan_of
from ztorch import ops
from ztorch.codegen import ptx
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import bf16, f16, f32, from_storage
from ztorch.errors import InterpretError
from ztorch.graph.narrow import products_of, rounded
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Fragment
from ztorch.ir.layouts import places
from ztorch.ir.parse import parse as parse_kernel
from ztorch.ir.text import show
from ztorch.lower.schedule import IllegalSchedule

SM_80 = TARGETS["cuda:sm_80"].limits
# Heads, those of keys, queries, keys, size of a head, shape of the mask, causal, dtype.
CASES = {
    "no whole matrices": (2, 2, 17, 40, 38, (), False, "bfloat16"),
    "causal": (2, 1, 150, 150, 16, (), True, "float16"),
    "masked, in groups": (4, 2, 33, 70, 8, (2, 1, 1, 70), True, "bfloat16"),
    "rows that see nothing": (2, 1, 40, 33, 8, (40, 33), True, "float16"),
}
SCHEDULES = ("grid_attention_matrix subgroups(2) high(2) block(32) stages(2) held(0)",
             "grid_attention_matrix subgroups(1) high(1) block(16) stages(3) held(1)")


def case(name: str) -> Job:
    return job(*CASES[name])


def as_only(graph: Graph, schedule: str) -> dict[str, str]:
    """A schedule for the only kernel of a graph."""
    [step] = plan_of(graph, SM_80)[0].steps
    return {step.key: schedule}


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    """No buffer but inputs and the result."""
    one = case(name)
    plan = plan_of(one.alone("j"), SM_80)[0]
    assert [s.schedule.kind for s in plan.steps] == ["grid_attention_matrix"] and not plan.buffers
    assert off(one, interpreted(one, SM_80)[0]) < 4


@pytest.mark.parametrize(("name", "schedule"), [*(("causal", s) for s in SCHEDULES), ("no whole matrices", SCHEDULES[1])])
def test_schedules(name: str, schedule: str) -> None:
    """All queries stay in registers, none, or one step of three."""
    one = case(name)
    assert off(one, interpreted(one, SM_80, schedules=as_only(one.alone("j"), schedule))[0]) < 4


@pytest.mark.parametrize("name", ["no whole matrices", "causal"])
def test_through_ptx(name: str) -> None:
    """The kernel that a GPU runs: fragments as PTX documents them, copies that land when they are waited for,
    exponentials and quotients with the errors that it allows."""
    one = case(name)
    [step] = plan_of(one.alone("j"), SM_80)[0].steps
    held, out = buffers_of(step, one)
    run(step.kernel, held, parse(rendered([step.kernel], "sm_80")))
    [root] = one.graph.roots
    assert off(one, from_storage(root.dtype, held[out]).reshape(root.shape)) < 4


def test_places_are_those_of_ptx() -> None:
    [halves] = {s.of: s for s in SM_80.grid.mma_shapes if s.of is f16}.values()
    for role, place in (("a", lambda lane, i: place_of_a("f16", lane, i)), ("c", place_of_c)):
        fragment = Fragment(role, halves, "quads")
        elements = fragment.size // 32
        rows, columns = places(fragment)
        for number, got in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
            assert got == place(number // elements, number % elements), (role, number)


@pytest.mark.parametrize(("missing", "why"), [
    ("copies_wait pending=0", "in flight"), ("barrier", "race")])
def test_missing_parts_are_detected(missing: str, why: str) -> None:
    """Without a wait or a barrier of the loop, the interpreter sees keys that are not there yet."""
    one = case("causal")
    [step] = plan_of(one.alone("j"), SM_80)[0].steps
    lines = show(step.kernel).splitlines()
    at = [n for n, line in enumerate(lines) if line.strip() == missing]
    assert at, "\n".join(lines[:80])
    broken = parse_kernel("\n".join(lines[:at[0]] + lines[at[0] + 1:]))
    held, _ = buffers_of(step, one)
    with pytest.raises(InterpretError, match=why):
        interpret(broken, held, subgroup=32, races=True)


@pytest.mark.parametrize(("chip", "size", "causal", "masked"), [
    ("sm_80", 128, False, False), ("sm_100", 96, True, True)])
def test_nothing_spills(chip: str, size: int, causal: bool, masked: bool) -> None:
    """Though more than 128 registers are taken, as rows of twice the height need."""
    pytest.importorskip("cuda.bindings.nvjitlink", reason="needs nvJitLink: pip install 'ztorch[cuda]'")
    q, k, v = (leaf("input", n, (1, 64, 2048, size), bf16) for n in "qkv")
    mask = leaf("input", "m", (1, 1, 1, 2048), "bool") if masked else None
    graph = Graph({"y": ops.attention(q, k, v, mask, causal)})
    [step] = plan_of(graph, TARGETS[f"cuda:{chip}"].limits)[0].steps
    assert "high(2)" in str(step.schedule)
    [[registers, spilled, _]] = ptx.kernel_resources(ptx.cubin(rendered([step.kernel], chip), chip)[1]).values()
    assert spilled == 0 and 128 < registers <= 255, (registers, spilled)


def test_where_it_is_chosen() -> None:
    """On machines that multiply matrices of the dtype and say who has which elements of them."""
    def kinds(target: str, dtype: object) -> set[str]:
        q, k, v = (leaf("input", n, (2, 32, 16), dtype) for n in "qkv")
        return {s.schedule.kind for s in plan_of(
            Graph({"y": ops.attention(q, k, v)}), TARGETS[target].limits)[0].parts}

    assert kinds("cuda:sm_80", bf16) == kinds("cuda:sm_100", f16) == {"grid_attention_matrix"}
    for target, dtype in (("cuda:sm_80", f32), ("rocm:gfx942", bf16), ("vulkan", f16)):
        assert "grid_attention_matrix" not in kinds(target, dtype)


def test_mixed_precision() -> None:
    """Tensors are float32, and the rounded operands of products are read in 16 bits; the result is not rounded."""
    q, k, v = (leaf("input", n, (2, 2, 40, 16), f32) for n in "qkv")
    with products_of(bf16):
        graph = Graph({"y": ops.attention(q, k, v, causal=True)})
    one = Job(graph, fed(graph))
    steps = plan_of(one.alone("j"), SM_80)[0].parts
    assert [s.schedule.kind for s in steps] == 3 * ["grid_elements"] + ["grid_attention_matrix"]
    [got], [want] = interpreted(one, SM_80), one.oracle()
    assert got.dtype == np.float32 and (got != rounded(got, bf16)).any()
    largest = np.abs(one.feeds[v]).max()  # weights add up to 1, and both sides round them to 8 bits
    np.testing.assert_allclose(got, want, rtol=0, atol=2.0**-8 * largest)


def test_illegal_schedules() -> None:
    q, k, v = (leaf("input", n, (2, 64, 128), f16) for n in "qkv")
    graph = Graph({"y": ops.attention(q, k, v)})
    for change, why in (("high(2)", "registers of matrices"), ("block(24)", "multiple of 16"),
                        ("stages(1)", "at least 2"), ("stages(9)", "it shares"), ("subgroups(40)", "1 to 32"),
                        ("held(9)", "must be 0 to 8")):
        schedule = "grid_attention_matrix subgroups(4) high(1) block(64) stages(2) held(1)"
        name = change.split("(")[0]
        changed = " ".join(change if part.startswith(name) else part for part in schedule.split())
        with pytest.raises(IllegalSchedule, match=why):
            plan_of(graph, SM_80, schedules=as_only(graph, changed))
