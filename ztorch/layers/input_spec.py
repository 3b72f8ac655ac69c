"""The specification of a custom layer's inputs, as in Keras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ztorch.config import positive
from ztorch.graph.op import shape_error
from ztorch.graph.value import Value
from ztorch.layers.symbol import leaves


class InputSpec:
    """The inputs that a layer accepts. Its attribute `input_spec` is checked at each call.

    Args:
        dtype: Has no effect: layers cast their inputs. Default: `None`.
        shape: Shape including the batch; `None` in it means any size. Default: `None`.
        ndim: Number of axes, including the batch. Default: `None`.
        max_ndim: Maximum number of axes. Default: `None`.
        min_ndim: Minimum number of axes. Default: `None`.
        axes: Sizes by axis; `None` means any size. Default: `None`.
        allow_last_axis_squeeze: Has no effect. Default: `False`.
        name: Has no effect. Default: `None`.
        optional: Has no effect. Default: `False`.

    Examples:
        >>> import ztorch as zt
        >>> class Twice(zt.layers.Layer):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.input_spec = zt.layers.InputSpec(ndim=2, axes={-1: 3})
        ...     def call(self, x):
        ...         return 2.0 * x
        >>> Twice()(zt.Input((3,))).shape
        (None, 3)
    """

    def __init__(self, dtype: Any = None, shape: Sequence[int | None] | None = None,
                 ndim: int | None = None, max_ndim: int | None = None,
                 min_ndim: int | None = None, axes: Mapping[int, int | None] | None = None,
                 allow_last_axis_squeeze: bool = False, name: str | None = None,
                 optional: bool = False):
        self.dtype, self.name, self.optional = dtype, name, optional
        self.shape = None if shape is None else tuple(shape)
        self.ndim = len(self.shape) if self.shape is not None else _count("ndim", ndim)
        self.max_ndim, self.min_ndim = _count("max_ndim", max_ndim), _count("min_ndim", min_ndim)
        self.axes = dict(axes or {})

    def check(self, layer: str, x: Value) -> None:
        """Raises a ShapeError if a tensor does not match."""
        low = self.ndim or self.min_ndim or 0
        high = self.ndim or self.max_ndim or x.rank
        if not low <= x.rank <= high:
            axes = str(low) if low == high else f"{low} to {high}"
            raise shape_error(f"{layer} takes inputs with {axes} axes, including the batch, not",
                              ("batch", *x.shape[1:]))
        sizes = {**dict(enumerate(self.shape or ())), **self.axes}
        for axis, size in sizes.items():
            if axis and size is not None and x.shape[axis] != size:
                raise shape_error(f"{layer} takes inputs of size {size} along axis {axis}, not",
                                  ("batch", *x.shape[1:]))


def check_inputs(layer: Any, inputs: Any) -> None:
    """Checks the inputs of a layer that has an `input_spec`."""
    specs = leaves(layer.input_spec)
    tensors = [x for x in leaves(inputs) if isinstance(x, Value)]
    if len(specs) > 1 and len(specs) != len(tensors):
        raise shape_error(f"{type(layer).__name__} takes {len(specs)} tensors, not {len(tensors)}")
    for spec, x in zip(specs if len(specs) > 1 else specs * len(tensors), tensors, strict=True):
        if isinstance(spec, InputSpec):
            spec.check(type(layer).__name__, x)


def _count(argument: str, n: Any) -> int | None:
    return None if n is None else positive(f"InputSpec({argument}=...)", n)
