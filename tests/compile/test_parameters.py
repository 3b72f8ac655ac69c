"""The block of parameters that a program starts with."""

from __future__ import annotations

import numpy as np
import pytest

from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph


@pytest.mark.parametrize("first", [0.0, -0.0, 0.1])
def test_a_broadcast_constant_is_stored(first):
    state = leaf("state", "s", (3,), "float32", np.broadcast_to(np.float32(first), (3,)))
    graph = Graph({"y": OPS.exp(state)}, {"s": OPS.neg(state)})
    made = compile_functions({"step": graph}, TARGETS["scalar"], "numbers")
    stored = made.spec.states["s"].read(made.params)
    assert stored.tobytes() == np.full(3, first, np.float32).tobytes()
