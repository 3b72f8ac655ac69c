"""What an op does with arrays: it is compiled and run at once.

Ops lie far below the compiler and may not import it. So they call `on_arrays`, which
`ztorch/__init__.py`, the one file that may import every room, sets when the package is imported.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes longer than all that a cold start needs of ours
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

on_arrays: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
