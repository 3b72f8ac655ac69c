"""Memory sizes in the form that users write."""

from __future__ import annotations

import re
from typing import Any

from ztorch.config import positive
from ztorch.errors import ConfigError

_UNITS = {"": 1, "B": 1, "KB": 10 ** 3, "MB": 10 ** 6, "GB": 10 ** 9,
          "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}  # bytes


def byte_count(label: str, size: Any) -> int:
    """A number of bytes, or a text such as "64MB" or "1.5 GiB", as an integer.

    >>> byte_count("memory_limit", "64MB"), byte_count("memory_limit", "1.5 KiB")
    (64000000, 1536)
    """
    if not isinstance(size, str):
        return positive(label, size)
    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d+)?)\s*([A-Za-z]*)\s*", size)
    if match is None or match[2].upper() not in _UNITS:
        raise ConfigError(f"{label}={size!r} is not a number of bytes; use a form like \"64MB\", "
                          "\"1.5 GiB\" or 64_000_000")
    return positive(label, int(float(match[1]) * _UNITS[match[2].upper()]))
