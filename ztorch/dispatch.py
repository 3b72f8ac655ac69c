"""What rooms below the compiler need of those above it: tensors are recorded, compiled and run.

Ops, optimizers and layers may not import `arrays/`, nor drivers `library/`: both stand on the
compiler. They call these functions, which `ztorch/__init__.py`, the one file that may import every
room, sets when the package is imported.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes longer than all that a cold start needs of ours
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

on_arrays: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]  # an op, its arguments -> results
update: Callable[[Any, Any, Any], Any]  # an optimizer, parameters, gradients -> parameters
call_layer: Callable[..., Any]  # a layer, its inputs, training= -> its output
stateless_call: Callable[[Any, Any, Any, Any, bool], Any]  # a layer, weights, inputs, training
from_library: Callable[[str], Any]  # a public name of `library/` -> what has that name
