"""Kernels that a process remembers: the next program takes them, and is no other for that."""

import pytest

import ztorch.layers as L
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.compile import kernels
from ztorch.compile.pipeline import Compiled, compile_functions
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Op, Value
from ztorch.host.settings import using
from ztorch.lower.region_kernel import RegionKernel
from ztorch.model.sequential import Sequential
from ztorch.sized_cache import SizedCache

TEXTS = ("sse4.1", "avx2", "opencl", "webgpu", "dummy")


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_lowered", SizedCache(100_000))
    monkeypatch.setattr(kernels, "_rendered", SizedCache(1 << 20))


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that are lowered."""
    names: list[str] = []
    lower = RegionKernel._lowered
    monkeypatch.setattr(RegionKernel, "_lowered", lambda self, *a: (names.append(self.name), lower(self, *a))[1])
    return names


def network(target: str, outputs: int = 3, optimizer: str = "sgd") -> Compiled:
    model = Sequential([L.Input((4,)), L.Dense(5, activation="gelu"), L.Dropout(0.5), L.Dense(outputs)], name="net")
    return compile_functions(model.trace(2, optimizer, "mse").functions, TARGETS[target], "net")


@pytest.mark.parametrize("target", TEXTS)
def test_the_text_is_the_same_with_kernels_of_other_programs(target: str) -> None:
    with using(cache=None):
        alone = network(target, 2, "adam")
    assert not kernels._lowered.size and not kernels._rendered.size
    network(target)
    assert kernels._lowered.size and kernels._rendered.size
    after = network(target, 2, "adam")
    assert after.text == alone.text and after.code == alone.code
    assert [s.key for p in after.plans.values() for s in p.steps] == [
        s.key for p in alone.plans.values() for s in p.steps]


def test_only_kernels_that_are_new_are_lowered(lowered: list[str]) -> None:
    counts = []
    for target, outputs in (("sse4.1", 3), ("sse4.1", 3), ("sse4.1", 2), ("avx2", 3)):
        lowered.clear()
        network(target, outputs)
        counts.append(len(lowered))
    first, again, changed, other = counts
    assert again == 0 < changed < first == other


def test_one_that_was_dropped_is_lowered_again(lowered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_lowered", SizedCache(0))
    for _ in range(2):
        lowered.clear()
        network("sse4.1")
        assert len(lowered) > 5


def times(factor: float) -> Op:
    return Op("times", "map", lambda x: (x.shape, x.dtype), numpy=lambda x: x * factor,
              body=lambda e, index: e.b.mul(e.read(0, index), factor), cost=1)


def body_of(v: Value) -> list[tuple]:
    [step] = compile_functions({"f": Graph({"y": v})}, TARGETS["dummy"], "f").plans["f"].steps
    return [(i.opcode, i.args) for i in step.kernel.body]


def test_ops_of_users_with_the_same_name_are_not_confused() -> None:
    x = leaf("input", "x", (8,), "float32")
    two, three = (body_of(times(factor)(x)) for factor in (2.0, 3.0))
    assert two != three and kernels._lowered.size == 0


def test_numbers_in_attributes_are_distinguished() -> None:
    x = leaf("input", "x", (8,), "float32")
    half, minus, tenth, again = (body_of(ops.add(x, number)) for number in (0.5, -0.5, 0.1, 0.1))
    assert half != minus and half != tenth and tenth == again


def test_nothing_is_remembered_without_a_cache() -> None:
    y = ops.add(leaf("input", "x", (8,), "float32"), 0.5)
    with using(cache=None):
        body_of(y)
    assert not kernels._lowered.size and not kernels._rendered.size
    body_of(y)
    assert kernels._lowered.size and kernels._rendered.size
