"""The CUDA driver on a pretended device, for a test."""

from __future__ import annotations

import pytest

from tests.cases import available
from tests.machines.fake_cuda import FakeCuda
from ztorch.arrays.placement import default_device
from ztorch.backends import cuda_calls, cuda_maps, registry
from ztorch.backends.drivers import cuda

real = pytest.importorskip("cuda.bindings.driver", reason="needs cuda-bindings: pip install 'ztorch[cuda]'")


def install(monkeypatch: pytest.MonkeyPatch, **more: object) -> FakeCuda:
    default_device()  # which a process asks for once: the real device, not the pretended one
    fake = FakeCuda(real, **more)  # type: ignore[arg-type]
    for module in (cuda_calls, cuda_maps):
        monkeypatch.setattr(module, "driver", lambda: fake)
    monkeypatch.setattr(cuda, "BACKEND", cuda.Cuda())
    monkeypatch.setattr(registry, "_opened", {})
    monkeypatch.setattr(available, "REQUIRED", {"cuda"})  # never skipped: it is here
    available.device.cache_clear()
    return fake


def close(fake: FakeCuda) -> None:
    """Leftover objects end with their own driver, not with the next test's."""
    fake.fail.clear()
    fake.forget()
    for device in registry._opened.values():
        device.close()
    available.device.cache_clear()
