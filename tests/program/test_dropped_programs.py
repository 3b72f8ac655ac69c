"""What is left of a program after it was dropped: nothing."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.graph.value import Graph, Value
from ztorch.host.settings import using
from ztorch.layers.layer import Layer

LAYERS: dict[str, Callable[[], list[L.Layer]]] = {
    "dense": lambda: [L.Input((6,)), L.Dense(3)],
    "convolution": lambda: [L.Input((6, 5, 2)), L.Conv2D(3, 3), L.Flatten(), L.Dense(2)],
    "recurrent": lambda: [L.Input((6, 3)), L.Bidirectional(L.GRU(2)), L.Dense(2)],
    "attention": lambda: [L.Input((6, 4)), L.TransformerEncoder(8, 2), L.Flatten(), L.Dense(2)],
}


@pytest.fixture(autouse=True)
def own_objects() -> Iterator[None]:
    """Each program is compiled, although others have the same kernels."""
    with using(cache=None):
        gc.collect()
        yield


def graphs() -> int:
    return sum(isinstance(held, (Graph, Value, Layer)) for held in gc.get_objects())


@pytest.mark.parametrize("kind", LAYERS)
def test_nothing_refers_to_a_dropped_program(kind: str) -> None:
    before = graphs()
    model = zt.Sequential(LAYERS[kind]())
    program = model.compile("cpu", batch_size=2, optimizer="adam", loss="mse")
    x = np.zeros((2, *model.input_shape[1:]), np.float32)
    program.fit(x, program.predict(x), batch_size=2, verbose=0)
    held = [weakref.ref(o) for o in (model, program, program.executable, program.executable.library)]
    assert all(one() is not None for one in held) and graphs() > before
    del model, program
    gc.collect()
    assert not any(one() for one in held) and graphs() == before


def test_distinct_programs_leave_descriptors_and_maps_as_they_were() -> None:
    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("memfd:ztorch")

    def run(outputs: int) -> None:
        program = zt.Sequential([L.Input((3,)), L.Dense(outputs)]).compile("cpu", batch_size=1)
        assert program.predict_on_batch(np.zeros((1, 3), np.float32)).shape == (1, outputs)

    run(500)
    gc.collect()
    before = held()
    for outputs in range(501, 521):
        run(outputs)
    gc.collect()
    assert held() == before
