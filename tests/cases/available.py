"""The backends that this machine has. Tests of a required backend fail if it is missing."""

from __future__ import annotations

import functools
import os

import pytest

from ztorch.backends import registry
from ztorch.backends.device import Device
from ztorch.machines.backends import running_on_cpu

REQUIRED = {n for n in os.environ.get("ZTORCH_REQUIRE_BACKENDS", "").split(",") if n}


@functools.cache
def device(name: str) -> Device:
    """The first device of a backend, opened; skips the test if there is none."""
    result, why = registry.usable_devices(name)
    if not result:
        assert name not in REQUIRED, f"backend {name} is required here: {why}"
        pytest.skip(f"no {name} device: {why}")
    return registry.open_device(name, result[0].ordinal)


def fresh(name: str) -> Device:
    """A device of its own, to be closed by the test."""
    return registry.backend(name).open(device(name).info.ordinal)


# Cases are shared out among these. A device of the others' is rare, and is tried on everything.
PLAYED = running_on_cpu()
# The fast path takes the first one, so it must be available.
NAMES = tuple(sorted(registry.names(), key=lambda n: (n != "dummy", n not in PLAYED)))
COMPUTING = tuple(n for n in NAMES if n != "dummy")  # which computes nothing
