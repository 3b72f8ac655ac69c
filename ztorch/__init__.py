"""ztorch: declare a model, compile it ahead of time, train it, ship it.

The names below load when first used, so that running an artifact imports no compiler.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing's own takes longer to import than all that is here
if TYPE_CHECKING:
    from typing import Any

    from ztorch import (  # isort: skip
        callbacks as callbacks,
        data as data,
        errors as errors,
        initializers as initializers,
        layers as layers,
        losses as losses,
        metrics as metrics,
        ops as ops,
        optimizers as optimizers,
        schedules as schedules,
    )
    from ztorch.runtime.devices import best_device as best_device
    from ztorch.runtime.devices import devices as devices
    from ztorch.sequential import Sequential as Sequential
    from ztorch.training.program import Program as Program
    from ztorch.training.program import load as load

_MODULES = ("callbacks", "data", "errors", "initializers", "layers", "losses", "metrics", "ops",
            "optimizers", "schedules", "settings")
_NAMES = {"Sequential": "sequential", "Program": "training.program", "load": "training.program",
          "best_device": "runtime.devices", "devices": "runtime.devices"}


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"ztorch.{name}")
    if name in _NAMES:
        found = getattr(importlib.import_module(f"ztorch.{_NAMES[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'ztorch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_MODULES, *_NAMES, "__version__"])
