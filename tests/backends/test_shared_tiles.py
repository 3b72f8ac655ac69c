"""Programs whose workgroups share tiles, on a pretended Hopper, whose driver refuses launches that wait for workgroups that may never
run."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases import pretended_cuda
from tests.cases.available import device
from tests.cases.device_programs import target_of
from tests.cases.products import bound, job, transposed
from tests.cases.ring_kernels import Everywhere
from tests.parity import read, stored
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import bf16
from ztorch.runtime.remote import Remote

SHARED = "grid_stream tile(rows=64, columns=64) stages(2) epilogue(bands=1) cluster(rows=1, columns=1) whole(0)"


def test_shared_tiles_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = pretended_cuda.install(monkeypatch)
    here, one = device("cuda"), job(transposed, (192, 72), (64, 72), d=bf16)
    target, graph = target_of(here), one.alone("j")
    made = compile_functions({"j": graph}, target, "shared", schedules=Everywhere(SHARED, "matmul"))
    remote = Remote(made.spec, made.code, made.params, here)
    call = remote.bind("j")
    for v in graph.leaves("input"):
        call.inputs[v.attrs["name"]][...] = stored(v.dtype, v.attrs["fed"])
    results = []
    for _ in range(2):
        call()
        results += [read(bf16, y).copy() for y in call.outputs.values()]
    np.testing.assert_array_equal(*results)
    (want,) = one.oracle()
    assert (np.abs(results[0].astype(np.float64) - want) <= bound(one, bf16, 72)).all()
    [step] = made.plans["j"].steps
    assert step.schedule is not None and step.schedule.kind == "grid_stream"
    assert b"_signal: ld.acquire.gpu" in made.code
    pretended_cuda.close(fake)
