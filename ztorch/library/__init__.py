"""For authors of other libraries: the memory, the streams and the routines of each device, on raw
buffers, and custom kernels."""

from __future__ import annotations

import importlib
from typing import Any

PUBLIC = {"get": "device_library", "BackendBuilder": "builder"}  # the names of `zt.backends`


def public(name: str) -> Any:
    """The object of a public name; its module is imported when it is first asked for."""
    return getattr(importlib.import_module(f"{__name__}.{PUBLIC[name]}"), name)
