"""Operators that make tensors from shapes and numbers."""

from __future__ import annotations

import numpy as np

from ztorch.interchange.torch_export.translation import OperatorCall, Result, call


@call("sym_size.int")
def _size(c: OperatorCall) -> Result:
    shape = c.node("Shape", c.x())
    return c.node("Gather", shape, c.constant(np.int64(c.get("dim"))), axis=0)


def _filled(c: OperatorCall, shape: str) -> str:
    named = c.op.removeprefix("new_").removesuffix("_like").removesuffix("_permuted")
    value = {"zeros": 0, "ones": 1, "empty": 0}.get(named)
    value = c.get("fill_value", value)
    d = c.result.dtype
    if isinstance(value, (bool, int, float)):
        array = np.array([value], d.working)
        if d.in_numpy:
            return c.node("ConstantOfShape", shape, value=array)
    return c.node("Expand", c.number(value, d), shape)


@call("zeros", "ones", "full", "new_zeros", "new_ones", "new_full", "empty.memory_format",
      "empty_permuted", "new_empty")
def _fill(c: OperatorCall) -> Result:
    return _filled(c, c.ints(*c.get("size")))


@call("zeros_like", "ones_like", "full_like", "empty_like")
def _fill_like(c: OperatorCall) -> Result:
    return _filled(c, c.node("Shape", c.x()))


@call("scalar_tensor")
def _scalar(c: OperatorCall) -> Result:
    return c.number(c.get("s"), c.result.dtype)


@call("arange", "arange.start", "arange.start_step")
def _range(c: OperatorCall) -> Result:
    d = c.result.dtype
    return c.node("Range", c.number(c.get("start", 0), d), c.number(c.get("end"), d),
                  c.number(c.get("step", 1), d))


@call("linspace")
def _between(c: OperatorCall) -> Result:
    d, steps = c.result.dtype, c.get("steps")
    count = c.number(steps, d)
    index = c.node("Range", c.number(0, d), count, c.number(1, d))
    start, end = c.number(c.get("start"), d), c.number(c.get("end"), d)
    last = c.node("Max", c.node("Sub", count, c.number(1, d)), c.number(1, d))
    step = c.node("Div", c.node("Sub", end, start), last)
    return c.node("Add", start, c.node("Mul", index, step))
