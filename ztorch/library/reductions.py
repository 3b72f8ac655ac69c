"""Routines that combine the elements along axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ztorch.errors import ConfigError, ShapeError, unknown
from ztorch.graph.op import OPS, normal_axes
from ztorch.graph.value import Value
from ztorch.library.buffers import Strided, need_dtypes, need_shape, need_tensors
from ztorch.library.elementwise import result_of
from ztorch.library.raw_device import REDUCTIONS, RawDevice
from ztorch.library.strides import read

NEUTRAL = {"sum": 0, "prod": 1}  # the result of reducing no elements; others have none


class Reductions(RawDevice):
    """The routines that reduce, and softmax."""

    def reduce(self, op: str, x: Strided, y: Strided,
               axis: int | Sequence[int] | None = -1) -> None:
        """`y = op(x)` along axes.

        Args:
            op: "sum", "prod", "mean", "max", "min", "argmax" or "argmin".
            x: The operand.
            y: The result: of the shape of `x` without the axes, or with size 1 in their place.
                Positions, of "argmax" and "argmin", may be of any integer dtype; the mean of
                integers may be of any float dtype; all else has the dtype of `x`.
            axis: The axis, several, or `None` for all. Default: `-1`.

        Raises:
            Unsupported: The device cannot compute this dtype.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu, y = zt.backends.get("cpu"), np.zeros(2, np.float32)
            >>> x = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
            >>> cpu.reduce("sum", cpu.wrap(x).tensor((2, 2)), cpu.wrap(y).tensor((2,)), axis=0)
            >>> y
            array([4., 6.], dtype=float32)
        """
        if op not in REDUCTIONS:
            raise unknown("reduction", op, REDUCTIONS)
        need_tensors(f"reduce {op}", x=x, y=y)
        self._need_dtype(f"reduce {op}", x.dtype)
        axes = normal_axes(tuple(axis) if isinstance(axis, Sequence) else axis, len(x.shape))
        positions, rank = op.startswith("arg"), len(x.shape)
        if positions and not y.dtype.is_int:
            raise ConfigError(f"reduce {op}: y is {y.dtype}, and holds positions: use int32")
        converted = op == "mean" and x.dtype.is_int and y.dtype.is_float
        if not (positions or converted):
            need_dtypes(f"reduce {op}", x.dtype, y=y)
        with_ones = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
        dropped = tuple(n for k, n in enumerate(x.shape) if k not in axes)
        if y.shape not in (with_ones, dropped):
            raise ShapeError(f"reduce {op}: y has shape {y.shape}, and must have {dropped} or "
                             f"{with_ones}")
        if not y.size:
            return
        if not x.size and op not in NEUTRAL:
            raise ShapeError(f"reduce {op}: there is no {op} of no elements: x has shape {x.shape}")

        def function(v: Mapping[str, Value]) -> dict[str, Value]:
            if not x.size:
                result = OPS.full(y.shape, NEUTRAL[op], y.dtype)
            else:
                values = read(v["x"], x.shape, x.strides)
                values = OPS.cast(values, y.dtype) if converted else values
                along = axes[0] if len(axes) == 1 else axes if len(axes) < rank else None
                reduced = getattr(OPS, op)(values, axis=along)
                result = OPS.reshape(reduced, y.shape)
                result = OPS.cast(result, y.dtype) if positions else result
            return {"out": result_of(op, result, y, v)}

        reads = {"x": x} if x.size else {}
        self._run(f"reduce {op}", (op, axes, x.shape), function, reads, {"out": y})

    def softmax(self, x: Strided, y: Strided, axis: int = -1) -> None:
        """`y = exp(x) / sum(exp(x))` along an axis; `y` may be `x`.

        Args:
            x: The operand, floats.
            y: The result, of the same shape and dtype.
            axis: The axis along which it sums to 1. Default: `-1`.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu, x = zt.backends.get("cpu"), np.zeros((1, 4), np.float32)
            >>> operand = cpu.wrap(x).tensor((1, 4))
            >>> cpu.softmax(operand, operand)
            >>> x.tolist()
            [[0.25, 0.25, 0.25, 0.25]]
        """
        need_tensors("softmax", x=x, y=y)
        self._need_dtype("softmax", x.dtype)
        need_dtypes("softmax", x.dtype, y=y)
        need_shape("softmax", "y", y, x.shape)
        [along] = normal_axes(axis, len(x.shape))
        if not x.size:
            return

        def function(v: Mapping[str, Value]) -> dict[str, Value]:
            result = OPS.softmax(read(v["x"], x.shape, x.strides), axis=along)
            return {"out": result_of("softmax", result, y, v)}

        self._run("softmax", (along,), function, {"x": x}, {"out": y})
