"""The tensors of layers, read from a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.compile.targeting import target_for
from ztorch.errors import Unsupported
from ztorch.runtime.devices import resolve
from ztorch.verify import probes as probing
from ztorch.verify.probes import probes


def test_tensors_of_layers_are_read_in_parts_where_a_device_has_few_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    model = zt.Sequential([L.Input((3,)), *(L.Dense(n, "tanh") for n in (4, 5, 6, 2, 1))], seed=1)
    program, traced = model.compile("cpu", batch_size=2), model.trace(batch_size=2)
    inner = probes(traced.functions["predict"])
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    y, wanted = x.astype(np.float64), []
    for layer in model.layers:
        if weights := layer.get_weights():
            y = np.tanh(y @ weights[0] + weights[1])
            wanted.append(y)
    sizes, compile_all = [], probing.compile_functions

    def compiled(graphs: dict[str, Any], *more: Any) -> Any:
        sizes.append(len(graphs["predict"].outputs))
        if sizes[-1] > 1:
            raise Unsupported("two buffers are too many")
        return compile_all(graphs, *more)

    monkeypatch.setattr(probing, "compile_functions", compiled)
    subject = probing.Subject("net", traced, target_for(resolve("cpu")), None, program.executable, {})
    states = program.executable.states_snapshot()
    results = [(probe, values.copy()) for probe, values, _ in probing.read_probes(subject, inner, {"x": x}, states)]
    assert [probe for probe, _ in results] == inner and len(inner) == 5
    for (_, values), want in zip(results, wanted, strict=True):
        np.testing.assert_allclose(values, want, rtol=1e-5, atol=1e-6)
    assert sizes == [5, 2, 1, 1, 3, 1, 2, 1, 1]
