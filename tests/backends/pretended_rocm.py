"""A pretended ROCm device, whose code objects run as text on the CPU."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cases import available
from tests.machines.fake_hip import FakeHip
from tests.machines.rocm.machine import Hosted, hosted_cpp, hosted_ir
from ztorch.arrays.placement import default_device
from ztorch.backends import hip, registry
from ztorch.backends.drivers import rocm
from ztorch.codegen import amdgcn
from ztorch.codegen.targets import TARGETS, Target

WAVES = {t.chip: t.limits.grid.subgroup for t in TARGETS.values() if t.assembler == "amdgcn"}
made: dict[bytes, tuple[str, int]] = {}  # code object -> the text it is made of, and its waves


@functools.cache
def remembered(text: str, target: Target) -> bytes:
    code = assemble(text, target)
    made[code] = text, target.limits.grid.subgroup
    return code


assemble = amdgcn.assemble


def hosted(code: bytes) -> Hosted:
    text, wave = made[code]
    return hosted_cpp(text, wave) if "__global__" in text else hosted_ir(text, wave)


def close() -> None:
    """Everything that tests have opened."""
    gc.collect()  # programs release their resources
    for device in registry._opened.values():
        device.close()
    registry._opened.clear()
    available.device.cache_clear()
    gc.freeze()  # remaining objects stay: the next search need not go through them


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeHip]]:
    """Puts a pretended library in place of HIP's."""
    def install(chip: str = "gfx90a", **more: Any) -> FakeHip:
        close()
        default_device()  # which a process asks for once: the real device, not the pretended one
        fake = FakeHip(hosted, chip, WAVES.get(chip, 32), **more)
        monkeypatch.setattr(hip, "library", lambda: fake)
        monkeypatch.setattr(rocm, "BACKEND", rocm.Rocm())
        return fake

    monkeypatch.setattr(amdgcn, "assemble", remembered)
    monkeypatch.setattr(hip, "compiler", lambda: None)
    monkeypatch.setattr(registry, "_opened", {})
    monkeypatch.setattr(available, "REQUIRED", {"rocm"})  # never skipped: it is here
    yield install
    close()


@pytest.fixture
def fake(install: Callable[..., FakeHip]) -> FakeHip:
    return install()
