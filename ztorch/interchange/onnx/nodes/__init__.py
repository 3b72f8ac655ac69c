"""The meaning of each ONNX op, a file a family; the decorator in `node.py` registers them."""

from __future__ import annotations

import importlib
import pkgutil

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
