"""Elementwise routines: any op of zt.ops with one or two tensors, on strided operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ztorch.errors import ShapeError, unknown
from ztorch.graph.op import ALIASES, OPS, REGISTRY, Public
from ztorch.graph.value import Value
from ztorch.library.buffers import Strided, need_tensors
from ztorch.library.raw_device import RawDevice, old_name
from ztorch.library.strides import has_gaps, read, write
from ztorch.ops import signature


class Elementwise(RawDevice):
    """The routines that compute each element by itself."""

    def unary(self, op: str, x: Strided, y: Strided, **attributes: Any) -> None:
        """`y = op(x)`, element by element; `y` may be `x`.

        Args:
            op: An op of one tensor, such as "exp", "negative", "relu", "cast".
            x: The operand.
            y: The result, of the op's shape and dtype.
            **attributes: The op's other arguments.

        Raises:
            Unsupported: The device cannot compute this dtype.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu, x = zt.backends.get("cpu"), np.array([-1.0, 2.0], np.float32)
            >>> operand = cpu.wrap(x).tensor((2,))
            >>> cpu.unary("relu", operand, operand)
            >>> x
            array([0., 2.], dtype=float32)
        """
        self._elementwise("unary", _op(op, 1), {"x": x}, y, attributes)

    def binary(self, op: str, x: Strided, y: Strided, z: Strided, **attributes: Any) -> None:
        """`z = op(x, y)`, element by element; operands broadcast, and `z` may be one of them.

        Args:
            op: An op of two tensors, such as "add", "maximum", "less", "power".
            x: The first operand.
            y: The second operand.
            z: The result, of the op's shape and dtype.
            **attributes: The op's other arguments.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu, x = zt.backends.get("cpu"), np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
            >>> whole, first = cpu.wrap(x).tensor((2, 2)), cpu.wrap(x).tensor((2,))
            >>> cpu.binary("add", whole, first, whole)
            >>> x.tolist()
            [[2.0, 4.0], [4.0, 6.0]]
        """
        self._elementwise("binary", _op(op, 2), {"x": x, "y": y}, z, attributes)

    def _elementwise(self, name: str, op: Public, operands: Mapping[str, Strided],
                     result: Strided, attributes: Mapping[str, Any]) -> None:
        need_tensors(f"{name} {op.name}", **operands, result=result)
        if not result.size:
            return

        def function(v: Mapping[str, Value]) -> dict[str, Value]:
            values = [read(v[n], t.shape, t.strides) for n, t in operands.items()]
            y = getattr(OPS, op.name)(*values, **attributes)
            return {"out": result_of(op.name, y, result, v)}

        key = op.name, repr(sorted(attributes.items()))
        self._run(f"{name} {op.name}", key, function, operands, {"out": result})


def result_of(name: str, y: Value, result: Strided, v: Mapping[str, Value],
              label: str = "out") -> Value:
    """The flat buffer of a result; a ShapeError where the result is described wrongly."""
    if y.shape != result.shape or y.dtype is not result.dtype:
        raise ShapeError(f"{name} gives {y.dtype}{list(y.shape)}, and the result is described as "
                         f"{result.dtype}{list(result.shape)}")
    gaps = v[old_name(label)] if has_gaps(result.shape, result.strides) else None
    return write(y, result.strides, gaps)


def _op(name: str, tensors: int) -> Public:
    """The op of that name or alias, if it takes this many tensors and gives one."""
    known = REGISTRY.get(ALIASES.get(name, name))
    if known is None or _tensors(known) != tensors:
        raise unknown(f"op of {tensors} tensor{'s' * (tensors > 1)}", name,
                      [n for n, op in REGISTRY.items() if _tensors(op) == tensors])
    return known


def _tensors(op: Public) -> int:
    """How many tensors an op needs; 0 if any number."""
    declared, tensors = signature(op.name)
    parameters = [p for p in declared.parameters.values() if p.name in tensors]
    if op.results or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 0
    return sum(p.default is p.empty for p in parameters)
