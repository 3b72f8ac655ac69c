"""The form of each op and layer in an ONNX file; the decorators in `recipe.py` register it."""

from __future__ import annotations

import importlib
import pkgutil

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
