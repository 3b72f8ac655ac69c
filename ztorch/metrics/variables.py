"""The variables of metrics, which accumulate the results of batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ztorch import ops
from ztorch.dtypes import DType, f32
from ztorch.errors import Unsupported
from ztorch.graph.op import constant, shape_error
from ztorch.graph.running_step import running_step
from ztorch.graph.value import StandIn, Value


class MetricVariable(StandIn):
    """A total of a metric. It starts at zero and is added to."""

    def __init__(self, metric: str, name: str, shape: tuple[int, ...]):
        self.metric, self.name = metric, name
        self.shape = shape
        self.total: Any = np.zeros(shape, np.float32)  # a graph value during tracing
        self.updating = False  # whether `update_state` is being traced

    @property
    def tensor(self) -> Any:
        """The value of the variable: its total."""
        if self.updating:
            raise Unsupported(f"metric {self.metric!r} reads its variable {self.name!r} in "
                              "update_state, which must not depend on earlier batches; add to it "
                              f"with self.{self.name}.assign_add(...), and read it in result")
        return self.total

    @property
    def value(self) -> Any:
        """The total, as in Keras."""
        return self.tensor

    def assign_add(self, x: Any) -> None:
        """Adds to the total.

        Args:
            x: A tensor of the shape of the variable, or one that broadcasts to it.
        """
        if not isinstance(self.total, Value):
            self.total = x + self.total
            return
        x = ops.cast(x, self.total.dtype) if isinstance(x, Value) else x
        total = self.total + x
        if total.shape != self.shape:
            raise shape_error(f"metric {self.metric!r} adds to its variable {self.name!r}:",
                              self.shape, tuple(getattr(x, "shape", ())),
                              fix="sum over the batch first, with zt.ops.sum")
        self.total = total

    def assign_sub(self, x: Any) -> None:
        """Subtracts from the total."""
        self.assign_add(-x)

    def assign(self, x: Any) -> None:
        """Sets the total outside of programs; in `update_state`, only to itself plus an increment.

        Args:
            x: A number or an array, or `self.total + batch` of a variable `self.total`.
        """
        if isinstance(x, _Increased) and x.variable is self:
            self.assign_add(x.by)
            return
        if isinstance(self.total, Value):
            raise Unsupported(f"metric {self.metric!r} assigns to its variable {self.name!r}, and "
                              "programs can only sum the results of batches: use "
                              f"self.{self.name}.assign_add(...)")
        self.total = np.broadcast_to(x, self.shape) if isinstance(x, (int, float)) else x

    @staticmethod
    def apply_op(name: str, *args: Any, **attrs: Any) -> Any:
        if name == "add" and len(args) == 2 and not attrs:
            for variable, by in (args, args[::-1]):
                if isinstance(variable, MetricVariable) and variable.updating:
                    return _Increased(variable, by)
        return getattr(ops, name)(*map(_total, args), **{k: _total(x) for k, x in attrs.items()})

    @staticmethod
    def ops() -> Sequence[Mapping[str, Any]]:
        return ()

    def numpy(self) -> np.ndarray:
        """The total as an array."""
        return np.asarray(self.tensor)

    def __float__(self) -> float:
        return float(self.tensor)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """For ops whose first operand is a `zt.Tensor`."""
        return np.asarray(self.tensor, dtype)

    def __repr__(self) -> str:
        return f"<variable {self.name} of metric {self.metric} {self.shape}>"


class _Increased:
    """A variable plus the increment of a batch, in `update_state`. It can only be assigned."""

    def __init__(self, variable: MetricVariable, by: Any):
        self.variable, self.by = variable, by

    def __getattr__(self, name: str) -> Any:
        return getattr(self.variable.tensor, name)  # raises the error


# The sums of the metrics within a metric that is traced: those of a batch, or their totals.
inner_sums: ContextVar[dict[Any, dict[str, Any]] | None] = ContextVar("inner_sums", default=None)


def variables_of(metric: Any) -> dict[str, MetricVariable]:
    """The variables of a metric and of the metrics within it, by names that tell them apart."""
    return {f"{where}{v.name}": v for where, part in metric.parts().items() for v in part.variables}


@contextmanager
def adding(metric: Any, d: DType) -> Iterator[dict[str, Value]]:
    """In this block, traces what a batch adds to the variables of a metric, from zero, and to the
    sums of metrics within it that have none. The dict (by name) is filled at the end."""
    added: dict[str, Value] = {}
    variables = variables_of(metric)
    before = [v.total for v in variables.values()]
    for v in variables.values():
        v.total, v.updating = constant(np.zeros(v.shape), d), True
    token = inner_sums.set({})
    try:
        yield added
        added.update((name, v.total) for name, v in variables.items())
        sums = inner_sums.get() or {}
        added.update((f"{where}{key}", x) for where, part in metric.parts().items()
                     for key, x in sums.get(part, {}).items())
    finally:
        inner_sums.reset(token)
        for v, total in zip(variables.values(), before, strict=True):
            v.total, v.updating = total, False


@contextmanager
def totals_of(metric: Any, totals: Mapping[str, Value]) -> Iterator[None]:
    """In this block, a metric and those within it have these totals, for tracing a result."""
    variables = variables_of(metric)
    before = [v.total for v in variables.values()]
    for name, v in variables.items():
        v.total = totals[name]
    token = inner_sums.set({part: {name.removeprefix(where): x for name, x in totals.items()
                                   if where and name.startswith(where)}
                            for where, part in metric.parts().items()})
    try:
        yield
    finally:
        inner_sums.reset(token)
        for v, total in zip(variables.values(), before, strict=True):
            v.total = total


def updating(update_state: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `update_state` of a metric with variables. In a step it adds to the variables of the
    current batch."""

    @functools.wraps(update_state)
    def updated(self: Any, *args: Any, **keywords: Any) -> None:
        traced = [x for x in (*args, *keywords.values()) if isinstance(x, Value)]
        within = inner_sums.get() is not None  # the metric is being traced, or one around it
        if within or not traced or not (self.variables or len(self.parts()) > 1):
            update_state(self, *args, **keywords)
        elif (step := running_step.get()) is not None:
            d = next((x.dtype for x in traced if x.dtype.is_float), f32)
            with adding(self, d) as added:
                update_state(self, *args, **keywords)
            step.add(self, **added)

    return updated


def reading(result: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `result` of a metric with variables. In a step it is the result of the current
    batch."""

    @functools.wraps(result)
    def measured(self: Any, *args: Any, **keywords: Any) -> Any:
        step = running_step.get()
        if step is None or args or keywords or inner_sums.get() is not None or not (
                self.variables or len(self.parts()) > 1):
            return result(self, *args, **keywords)
        return step.measured(self)

    return measured


def _total(x: Any) -> Any:
    """An argument of an op with each variable replaced by its total, also within lists."""
    if isinstance(x, MetricVariable):
        return x.tensor
    return type(x)(map(_total, x)) if type(x) in (list, tuple) else x
