"""Variables: weights that users make, without a layer or as an attribute of one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ztorch.config import flag
from ztorch.errors import ConfigError
from ztorch.initializers import Initializer
from ztorch.layers.naming import checked_name
from ztorch.layers.plain_calls import need_floats
from ztorch.layers.tree import LayerNode
from ztorch.layers.weight import Weight

_numbers = itertools.count()


class _NoLayer(LayerNode, abstract=True):
    """Stands in for the layer of variables that are no part of one."""

    name = ""
    trainable = True
    adopter = None


_ALONE = _NoLayer()


class Variable(Weight):
    """An array that can change, as `keras.Variable`.

    Alone it acts in ops as a tensor of its current value, and optimizers change it with `apply`. As
    an attribute of a layer or a model written as in Keras it is one of its weights.

    Args:
        initializer: The first value: an array, a tensor, a number, or an initializer.
        shape: The shape, for an initializer. Default: `None`.
        dtype: A dtype of floats. Weights have the dtype of the model. Default: `None`.
        trainable: Whether an optimizer may change it. Default: `True`.
        name: Its name. `None` means that of the attribute that holds it. Default: `None`.

    Raises:
        Unsupported: The dtype is not one of floats.

    Examples:
        >>> import ztorch as zt
        >>> count = zt.Variable(1.0, trainable=False)
        >>> count.assign_add(2.0)
        >>> (count * 2.0).item()
        6.0
        >>> zt.Variable("zeros", shape=(2, 3)).shape
        (2, 3)
    """

    is_alone = True

    def __init__(self, initializer: Any, shape: Any = None, dtype: Any = None,
                 trainable: bool = True, name: str | None = None):
        number = next(_numbers)
        label = (f"variable_{number}" if number else "variable") if name is None else (
            checked_name(name, "variable"))
        need_floats(f"variable {label!r}", dtype)
        drawn = isinstance(initializer, (str, dict, Initializer)) or (
            callable(initializer) and not hasattr(initializer, "shape"))
        if drawn and shape is None:
            raise ConfigError(f"variable {label!r} needs a shape for its initializer, such as "
                              "zt.Variable('zeros', shape=(2, 3))")
        array = None if drawn else np.asarray(initializer)
        sizes: Any = shape if array is None or shape is not None else array.shape
        super().__init__(_ALONE, label, (sizes,) if isinstance(sizes, int) else tuple(sizes),
                         Initializer.get(initializer if drawn else "zeros"),
                         flag("Variable(trainable=...)", trainable))
        self.has_own_name = name is not None
        if array is not None:
            self.value = array

    def need_layer(self) -> None:
        if self.is_alone:
            raise ConfigError(f"variable {self.name!r} belongs to no layer, so the model would "
                              "neither train nor save it; make it an attribute of the layer or "
                              "model whose call uses it")
