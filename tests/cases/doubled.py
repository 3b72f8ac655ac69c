"""A kernel that doubles numbers, on each backend that is here."""

from __future__ import annotations

import pytest

import ztorch.ops  # noqa: F401  (registers them)
from tests.cases.available import COMPUTING, NAMES
from ztorch.backends.device import Device
from ztorch.backends.handles import Binding, DeviceModule, KernelEntry, Launch
from ztorch.codegen import targets
from ztorch.compile.device_code import device_code
from ztorch.compile.watch import Watch
from ztorch.dtypes import f32
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.lower.params import Params
from ztorch.lower.plan import lower
from ztorch.runtime.devices import resolve

every = pytest.mark.parametrize("name", NAMES)
computing = pytest.mark.parametrize("name", COMPUTING)
N = 1000


def doubling(d: Device, chained: int = 1) -> tuple[bytes, list[KernelEntry], list]:
    """Code that doubles N numbers, `chained` times one after the other, and its launches."""
    target = targets.target(resolve(d.id).target).on_device(dict(d.info.limits))
    y = leaf("input", "x", (N,), f32)
    for _ in range(chained):
        y = y + y
    params = Params(target.limits)
    plan = lower("double", Graph({"y": y}), target.limits, params, fusion=False)
    made = device_code({"double": plan}, target, Watch())
    return made.code, [KernelEntry(*e) for e in made.entries], list(made.launches["double"])


def loaded(d: Device, chained: int = 1) -> tuple[DeviceModule, list[Launch], dict]:
    code, entries, launches = doubling(d, chained)
    module = d.load(code, entries)
    buffers = {"inputs": d.alloc(4 * N), "outputs": d.alloc(4 * N), "arena": d.alloc(1 << 16)}
    ready = [Launch(x.entry, x.grid, tuple(
        Binding(buffers[space], 0 if space != "arena" else at, n, w)
        for space, at, n, w in x.places), x.barrier) for x in launches]
    return module, ready, buffers
