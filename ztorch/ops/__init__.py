"""Tensor operations, a file a family; every function here is registered by its decorator."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ztorch.graph.op import REGISTRY

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")

globals().update({name: public.call for name, public in REGISTRY.items()})
__all__ = sorted(REGISTRY)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Any]: ...
