"""Tensor operations, a file a family; every function here is registered by its decorator."""

from __future__ import annotations

import importlib
import pkgutil

from ztorch.graph.op import REGISTRY

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")

globals().update({name: public.call for name, public in REGISTRY.items()})
__all__ = sorted(REGISTRY)  # noqa: PLE0605
