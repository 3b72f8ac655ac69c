"""Programs on devices: data that stay there, data that cross at each step, and sizes of any machine."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import NAMES, device
from ztorch import layers as L
from ztorch.abi import PORT_ALIGN
from ztorch.backends.device import Device
from ztorch.backends.drivers.dummy import MEMORY
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.host import processor
from ztorch.program.program import Program
from ztorch.runtime.remote_steps import RemoteSteps

every = pytest.mark.parametrize("name", NAMES)
BATCH, GIB = 8, 1 << 30


def classifier(name: str, batch: int = BATCH) -> Program:
    model = zt.Sequential([L.Input((16,)), L.Dense(200, activation="relu"), L.Dropout(0.5),
                           L.BatchNormalization(), L.Dense(5, activation="softmax")])
    return model.compile(device(name).id, batch_size=batch, optimizer="adam", metrics=["accuracy"],
                         loss="sparse_categorical_crossentropy")


def deep(depth: int, batch: int) -> Program:
    """For the device that computes nothing: few weights, and activations as large as one likes."""
    hidden = [L.Dense(256, activation="tanh", name=f"hidden_{k}") for k in range(depth)]
    model = zt.Sequential([L.Input((1,)), *hidden, L.Dense(1)], name="deep")
    return model.compile("dummy", batch_size=batch, optimizer="adam", loss="mse")


def noted(what: str, moved: list[tuple[Any, ...]]) -> Callable[..., Any]:
    """A method of devices that says when it is called, and on how many bytes."""
    real = getattr(Device, what)

    def method(self: Device, *args: Any) -> Any:
        arrays = [x.nbytes for x in args if isinstance(x, np.ndarray)]
        moved.append((what, *arrays))
        return real(self, *args)

    return method


@every
@pytest.mark.parametrize("together", [True, False])
def test_a_step_moves_the_batch_and_the_metrics(together: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No weights, no arena, no memory asked for, nothing recorded again. Several steps move at once; where each
    is a call, and a device goes on by itself, a step is waited for once the next is there."""
    if not together:
        monkeypatch.setattr(RemoteSteps, "of", classmethod(lambda *_: None))
    program = classifier(name)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5 * BATCH, 16)).astype(np.float32)
    y = rng.integers(0, 5, 5 * BATCH).astype(np.int32)
    program.fit(x, y, verbose=0)  # the first binds its calls
    moved: list[tuple[Any, ...]] = []
    for method in ("submit", "finish", "write", "read", "copy", "alloc", "record"):
        monkeypatch.setattr(Device, method, noted(method, moved))
    program.fit(x, y, verbose=0)
    batch = BATCH * 16 * 4 + 3 * PORT_ALIGN  # rows, their labels, their weights and which count
    step = ("submit", batch, 2 * PORT_ALIGN)  # back come loss and accuracy
    done = [("finish",)] * device(name).overlaps
    assert moved == ([("submit", 5 * batch, 10 * PORT_ALIGN), *done] if together else
                     [step, *[step, *done] * 4, *done])
    assert program.executable.spec.params_bytes > 10 * batch


@every
def test_a_program_frees_all_its_device_memory(name: str) -> None:
    here = device(name)
    gc.collect()
    before = here.allocated, len(here._modules), len(here._recordings)
    program = classifier(name)
    program.predict(np.zeros((3, 16), np.float32))
    assert here.allocated > before[0] and len(here._modules) > before[1]
    del program
    gc.collect()
    assert (here.allocated, len(here._modules), len(here._recordings)) == before


def test_recordings_are_renewed_and_shared_buffers_copied_through_ports() -> None:
    program, here = classifier("dummy"), device("dummy")
    call = program.executable.bind_memory("predict")
    x, y = here.alloc(BATCH * 16 * 4), here.alloc(BATCH * 5 * 4)
    call.run([x], [y])
    [first] = call._recordings.values()
    here.drop(first)
    call.run([x], [y])
    [second] = call._recordings.values()
    assert second is not first and second.live
    call.run([x], [x])  # a launch that reads its own result
    assert len(call._recordings) == 1 and vars(call)["_ports"].recording.live


def test_plans_of_any_size() -> None:
    """Activations of hundreds of gigabytes, of which this machine holds none; it trains, too."""
    program = deep(80, 2_000_000)
    spec, here = program.executable.spec, program.executable.opened_device
    one = 2_000_000 * 256 * 4
    assert 80 * one < spec.arena_bytes < 90 * one  # each is kept for the way back
    assert spec.arena_bytes > 150 * GIB
    assert here.memory()[0] <= MEMORY - spec.arena_bytes
    places = [(at, at + size) for f in spec.functions.values() for launch in f.launches
              for space, at, size, _ in launch.places if space == "arena"]
    assert max(end for _, end in places) <= spec.arena_bytes
    assert max(start for start, _ in places) > 100 * GIB
    launched = here.launched  # type: ignore[attr-defined]
    program.train_on_batch(np.zeros((2_000_000, 1), np.float32), np.zeros((2_000_000, 1)))
    assert here.launched == launched + len(spec.functions["train"].launches)  # type: ignore[attr-defined]


def test_what_a_device_cannot_hold() -> None:
    gc.collect()  # models of other tests keep their programs
    here = device("dummy")
    taken = here.alloc(here.memory()[0] - 10 * GIB)
    with pytest.raises(OutOfMemory, match=r"program 'deep' needs 24,[\d,]+ bytes of dummy:0, and 10,737,418,240 of "
                                          r"[\d,]+ are free: [\d,]+ are for its weights \(make layers smaller\), 24,"
                                          r"[\d,]+ for the results of its layers \(compile with a smaller batch_size"):
        deep(10, 2_000_000)
    gc.collect()
    assert here.memory()[0] == 10 * GIB
    assert deep(4, 16).predict(np.zeros((3, 1))).shape == (3, 1)  # the device goes on
    here.free(taken)


def test_an_artifact_may_need_more_of_its_device_than_this_machine_has(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = deep(2, 4096)
    made.save(tmp_path / "deep.zt")
    spec = made.executable.spec
    assert spec.arena_bytes > 2 * spec.host_bytes
    monkeypatch.setattr(processor, "memory_bytes", lambda: spec.host_bytes + 1)
    assert zt.load(tmp_path / "deep.zt").device == "dummy:0"
    monkeypatch.setattr(processor, "memory_bytes", lambda: spec.host_bytes - 1)
    with pytest.raises(ValueError, match=r"claims .* bytes to run, more than"):
        zt.load(tmp_path / "deep.zt")


def test_rows_that_this_machine_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """They cross from here, so here they must be held: an error, not the end of the process."""
    monkeypatch.setattr(processor, "memory_bytes", lambda: GIB)
    model = zt.Sequential([L.Input((16,)), L.Dense(1)])
    with pytest.raises(DeviceError, match=r"program 'sequential' needs 1\.3 GiB of memory; this machine has 1\.0"):
        model.compile("dummy", batch_size=20_000_000)
