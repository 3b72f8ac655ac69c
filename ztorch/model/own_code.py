"""Tells models that consist of the package's layers from those with code of users.

Layers, losses and metrics of the package compute nothing from the size of a batch. A user's class
or function may, and so may ops between symbolic tensors, such as `x / ops.sum(ops.ones_like(x))`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from ztorch.dtypes import DType
from ztorch.layers.layer import Layer
from ztorch.layers.network import Network
from ztorch.layers.operation import Operation
from ztorch.layers.traced import Traced
from ztorch.layers.weight import Weight
from ztorch.losses import TargetSpec
from ztorch.names.class_names import is_ours

# Rooms whose classes compute with rows. Those of others, such as imported graphs and kernels, hold
# what a user wrote.
_ROOMS = ("layers", "model", "losses", "metrics", "regularizers")
_LINKS = ("adopter", "calls")  # attributes of layers that lead to the rest of the model
_PLAIN = (bool, int, float, str, np.ndarray, np.generic, DType, Traced, Weight, TargetSpec)


def has_own_code(parts: Iterable[Any]) -> bool:
    """Whether layers, losses, metrics, or objects that they hold, may run code of a user, or ops
    that a user chose.

    Examples:
        >>> import numpy as np
        >>> from ztorch import layers as L
        >>> has_own_code([L.Dense(3, activation="relu"), L.Flatten()])
        False
        >>> has_own_code([L.Lambda(np.tanh)])
        True
    """
    return _has_own(list(parts), set())


def _has_own(x: Any, visited: set[int]) -> bool:
    if x is None or isinstance(x, _PLAIN) or id(x) in visited:
        return False
    if isinstance(x, (list, tuple, set, frozenset)):
        return any(_has_own(item, visited) for item in x)
    if isinstance(x, Mapping):
        return any(_has_own(item, visited) for item in x.values())
    if isinstance(x, (FunctionType, type)):
        return not is_ours(x)
    visited.add(id(x))
    package, _, path = type(x).__module__.partition(".")
    if package != "ztorch" or path.split(".")[0] not in _ROOMS or isinstance(x, Operation):
        return True
    if isinstance(x, Network):  # its other attributes are those of its compiled programs
        methods = [m for m in vars(x).values() if isinstance(m, (FunctionType, MethodType))]
        return bool(x.own_functions or methods) or _has_own(x.adopted, visited)
    skipped = _LINKS if isinstance(x, Layer) else ()
    return any(_has_own(part, visited) for name, part in vars(x).items() if name not in skipped)
