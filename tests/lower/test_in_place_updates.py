"""Entries written at positions that are data: in place where a state is overwritten, else beside it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.available import PLAYED, device
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import build, compile_functions
from ztorch.errors import ShapeError
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.ops.placing import PLACED

POSITIONS = np.array([2, 0, -1, 6, 7, 99], np.int32)  # some are outside of seven entries


def want(x: np.ndarray, new: np.ndarray, axis: int) -> np.ndarray:
    y = x.copy()
    for row, position in enumerate(POSITIONS):
        if 0 <= position < x.shape[axis]:
            np.moveaxis(y[row], axis - 1, 0)[position] = np.moveaxis(new[row], axis - 1, 0)[0]
    return y


@pytest.mark.parametrize("name", ["cpu:scalar", "cpu", *(f"{b}:0" for b in PLAYED)])
@pytest.mark.parametrize(("shape", "axis"), [((6, 7), 1), ((6, 7, 33), 1), ((6, 3, 5, 7), 3),
                                             ((6, 3, 7, 12), 2)])
def test_entries(name: str, shape: tuple[int, ...], axis: int) -> None:
    """Twice, so that the second call continues from the first one's state."""
    if not name.startswith("cpu"):
        device(name[:-2])
    random = np.random.default_rng(0)
    entry = (*shape[:axis], 1, *shape[axis + 1:])
    first, added = (random.normal(size=s).astype(np.float32) for s in (shape, entry))
    state = leaf("state", "cache", shape, "float32", first, kind="cache", trainable=False)
    x = leaf("input", "x", entry, "float32")
    position = leaf("input", "position", (6,), "int32")
    new = PLACED(state, x * 2.0, position, axis=axis)
    changes = Graph({"y": OPS.sum(new, tuple(range(1, len(shape))))}, {"cache": new})
    keeps = Graph({"y": PLACED(OPS.reshape(state, shape), x, position, axis=axis) + 1.0})
    program = build({"predict": keeps, "write": changes}, name, "placing")
    calls = {function: program.bind(function) for function in ("predict", "write")}
    expected = first
    for turn in (1, 2):
        for call in calls.values():
            call.inputs["x"][...], call.inputs["position"][...] = added * turn, POSITIONS
            call()
        np.testing.assert_array_equal(calls["predict"].outputs["y"],
                                      want(expected, added * turn, axis) + 1)
        expected = want(expected, added * turn * 2, axis)
        np.testing.assert_array_equal(program.state("cache"), expected)
        np.testing.assert_allclose(calls["write"].outputs["y"],
                                   expected.sum(tuple(range(1, len(shape)))), rtol=0, atol=1e-4)
    kernels = [n for n, _ in program.functions["write"].kernels if "placed" in n]
    assert len(kernels) == 1  # nothing is fused with it


def test_only_entries_are_touched() -> None:
    """The work of a write does not grow with the size of its target."""
    kernels = []
    for length in (8, 8000):
        state = leaf("state", "cache", (1, length, 16), "float32", np.zeros((1, length, 16)),
                     kind="cache", trainable=False)
        x = leaf("input", "x", (1, 1, 16), "float32")
        position = leaf("input", "position", (1,), "int32")
        changes = Graph({"p": position + 1}, {"cache": PLACED(state, x, position, axis=1)})
        plan = compile_functions({"predict": changes}, TARGETS["avx2"], "p").plans["predict"]
        kernels += [step for step in plan.steps if "placed" in step.kernel.name]
    loops = [[tuple(map(str, i.args)) for i in step.kernel.body if i.opcode == "loop"] for step in kernels]
    assert len(loops) == 2 and loops[0] == loops[1]
    assert kernels[0].cycles == kernels[1].cycles


def test_shapes_that_do_not_fit() -> None:
    x = leaf("input", "x", (2, 5, 3), "float32")
    position = leaf("input", "p", (2,), "int32")
    for shape, axis in (((2, 2, 3), 1), ((2, 1, 3), 2), ((1, 5, 3), 0)):
        with pytest.raises(ShapeError, match="takes one entry along axis"):
            PLACED(x, leaf("input", "n", shape, "float32"), position, axis=axis)
