"""Random graphs with data to feed them: for property tests of passes and of lowering.

An *exact* graph holds only small integers (in whatever dtype), so that sums may be taken in any order and every right
implementation gives the same bits. The others use smooth functions, and are to be compared with a tolerance; no choice
in them depends on rounded values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ztorch import ops
from ztorch.dtypes import DType, boolean, f32, f64, i32, u32
from ztorch.graph.op import OPS, constant, leaf
from ztorch.graph.value import Graph, Value, layer_scope

_SHAPES = ((), (1,), (5,), (3, 4), (4, 3), (4, 4), (2, 3, 4), (2, 1, 4), (17,), (2, 3, 1, 2))
_LARGEST = 600  # elements


def random_graph(seed: int, size: int = 15, exact: bool = True, dropout: bool = True,
                 ) -> tuple[Graph, dict[Value, np.ndarray]]:
    """A graph of about `size` random ops, and an array for each of its inputs and states."""
    maker = _Maker(np.random.default_rng(seed), exact, dropout)
    for number in range(size):
        with layer_scope(f"layer_{number // 4}"):
            maker.step()
    return maker.graph(), maker.feeds


@dataclass
class _Maker:
    rng: np.random.Generator
    exact: bool
    dropout: bool
    feeds: dict[Value, np.ndarray] = field(default_factory=dict)
    pool: list[Value] = field(default_factory=list)
    bound: dict[Value, float] = field(default_factory=dict)  # no element is larger
    random_state: tuple[Value, Value] | None = None

    def __post_init__(self) -> None:
        for d in (f32, f32, f64 if self.rng.random() < 0.3 else f32, i32, boolean):
            self.input(self.pick(_SHAPES), d)

    # -- choices -------------------------------------------------------------------------------

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def value(self, test: Callable[[Value], bool] = lambda v: True) -> Value:
        """A value that passes, the newest most likely; a new input if none does."""
        result = [v for v in self.pool if test(v)]
        if not result:
            return self.input(self.pick(_SHAPES[3:]), f32)
        return result[-1 - min(len(result) - 1, int(self.rng.exponential(3.0)))]

    def number(self, v: Value) -> Value:
        return self.value(lambda o: o.dtype == v.dtype and _fits(o.shape, v.shape))

    def input(self, shape: tuple[int, ...], d: DType) -> Value:
        role = "state" if self.rng.random() < 0.3 else "input"
        data = self.data(shape, d)
        if self.rng.random() < 0.15:
            v = constant(data, d)
        else:
            v = leaf(role, f"{role}{len(self.feeds)}", shape, d)
            self.feeds[v] = data
        self.pool.append(v)
        self.bound[v] = 4.0
        return v

    def data(self, shape: tuple[int, ...], d: DType) -> np.ndarray:
        if d.is_float and not self.exact:
            return self.rng.uniform(-2, 2, shape).astype(d.numpy)
        low, high = (0, 2) if d is boolean else (-3, 4)
        data = self.rng.integers(low, high, shape).astype(d.numpy)
        return -data if d.is_float else data  # zeros are -0.0

    def keep(self, v: Value, bound: float) -> None:
        if v.size > _LARGEST or v.rank > 4 or (v.size == 0 and self.rng.random() < 0.9):
            return
        if bound > 1e4 and v.dtype is not boolean:
            v, bound = ops.clip(v, -8, 8), 8.0
        self.pool.append(v)
        self.bound[v] = bound

    # -- ops -----------------------------------------------------------------------------------

    def step(self) -> None:
        kinds = [self.unary, self.binary, self.with_number, self.choose, self.reduce, self.move,
                 self.join, self.matmul, self.logic, self.convert, self.take]
        if not self.exact:
            kinds += [self.smooth, self.rows]
        if self.dropout:
            kinds.append(self.drop)
        self.pick(kinds)()

    def arithmetic(self) -> Value:
        return self.value(lambda v: v.dtype is not boolean)

    def floating(self) -> Value:
        return self.value(lambda v: v.dtype.is_float)

    def unary(self) -> None:
        x = self.arithmetic()
        m = self.bound[x]
        name = self.pick(("neg", "abs", "square", "neg", "relu", "stop_gradient"))
        if name == "relu" and not x.dtype.is_float:
            name = "abs"
        self.keep(getattr(ops, name)(x), m * m if name == "square" else m)

    def binary(self) -> None:
        a = self.arithmetic()
        b = self.number(a)
        m, n = self.bound[a], self.bound[b]
        name, bound = self.pick((("add", m + n), ("sub", m + n), ("mul", m * n),
                                 ("maximum", max(m, n)), ("minimum", max(m, n))))
        self.keep(getattr(ops, name)(a, b), bound)

    def with_number(self) -> None:
        x = self.arithmetic()
        k = self.pick((0, 0, 1, 2, -1))
        m = self.bound[x]
        y, bound = self.pick((
            (lambda: x * k, 2 * m), (lambda: x + k, m + 2), (lambda: k - x, m + 2),
            (lambda: x / 1, m), (lambda: ops.add(-x, x), 2 * m),
            (lambda: x * (OPS.full((), 3, x.dtype) - 2), m)))
        self.keep(y(), bound)

    def choose(self) -> None:
        a = self.arithmetic()
        b = self.number(a)
        if self.exact and self.rng.random() < 0.5:
            c = self.pick((ops.less, ops.greater_equal, ops.equal))(a, b)
            self.keep(c, 1.0)
        else:
            c = self.value(lambda v: v.dtype is boolean and _fits(v.shape, a.shape))
            if c.dtype is not boolean:
                return
        self.keep(ops.where(c, a, b), max(self.bound[a], self.bound[b]))

    def logic(self) -> None:
        a = self.value(lambda v: v.dtype is boolean)
        if a.dtype is not boolean:
            return
        b = self.number(a)
        self.keep(self.pick((ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor))(
            a, ops.bitwise_not(b) if self.rng.random() < 0.5 else b), 1.0)

    def reduce(self) -> None:
        x = self.arithmetic()
        axes = tuple(k for k in range(x.rank) if self.rng.random() < 0.6)
        count = math.prod(x.shape[k] for k in axes)
        name = self.pick(("sum", "max", "min", "sum"))
        if count == 0 and name != "sum":
            return
        y = getattr(ops, name)(x, axis=axes, keepdims=bool(self.rng.random() < 0.5))
        self.keep(y, self.bound[x] * (count if name == "sum" else 1))

    def move(self) -> None:
        x = self.value()
        way = self.pick(("reshape", "transpose", "broadcast", "slice", "flip", "pad"))
        if way == "reshape":
            y = ops.reshape(x, self.pick(((-1,), (1, -1), tuple(reversed(x.shape)), (-1, 1),
                                          (2, -1) if x.size % 2 == 0 and x.size else (-1,))))
        elif way == "transpose":
            y = ops.transpose(x, tuple(int(k) for k in self.rng.permutation(x.rank)))
        elif way == "broadcast":
            lead = self.pick(((), (2,), (3,)))
            y = ops.broadcast_to(x, (*lead, *(3 if n == 1 else n for n in x.shape)))
        elif way == "slice":
            key = tuple(self.pick((slice(None), slice(1, None), slice(None, None, 2),
                                   slice(None, None, -1), slice(0, 2))) for _ in x.shape)
            y = ops.slice_by(x, key)
        elif way == "flip":
            y = ops.flip(x)
        elif x.dtype is boolean:
            return
        else:
            low, high = (tuple(int(n) for n in self.rng.integers(0, 3, x.rank)) for _ in "ab")
            y = ops.pad(x, low, high, self.pick((0, 1)))
        self.keep(y, max(1.0, self.bound[x]))

    def join(self) -> None:
        a = self.value(lambda v: v.rank > 0)
        axis = int(self.rng.integers(a.rank))
        b = self.value(lambda v: v.dtype == a.dtype and v.rank == a.rank and all(
            m == n for k, (m, n) in enumerate(zip(v.shape, a.shape, strict=True)) if k != axis))
        if b.dtype == a.dtype and b.rank == a.rank:
            self.keep(ops.concat(a, a if b.shape != a.shape else b, axis=axis),
                      max(self.bound[a], self.bound[b]))

    def matmul(self) -> None:
        a = self.value(lambda v: v.rank >= 2 and v.dtype.is_float)
        k = a.shape[-1]
        if k > 64:
            return
        fit = [v for v in self.pool if v.rank == 2 and v.shape[0] == k and v.dtype == a.dtype]
        b = self.pick(fit) if fit else self.input((k, self.pick((1, 3, 5))), a.dtype)
        self.keep(ops.matmul(a, b), max(1, k) * self.bound[a] * self.bound[b])

    def convert(self) -> None:
        x = self.value()
        to = self.pick((f32, f64, i32, boolean) if self.exact else (f32, f64))
        self.keep(ops.cast(x, to), self.bound[x])

    def take(self) -> None:
        x = self.value(lambda v: v.rank > 0 and v.size > 0)
        axis = int(self.rng.integers(x.rank))
        rows = self.rng.integers(0, x.shape[axis], self.pick(((3,), (2, 2)))).astype(np.int32)
        at = leaf("input", f"rows{len(self.feeds)}", rows.shape, i32)
        self.feeds[at] = rows
        self.keep(ops.take(x, at, axis), self.bound[x])

    def drop(self) -> None:
        if self.random_state is None:
            seed, step = leaf("state", "seed", (2,), u32), leaf("state", "step", (), u32)
            self.feeds[seed] = self.rng.integers(0, 2**32, 2).astype(np.uint32)
            self.feeds[step] = np.array(self.rng.integers(0, 2**32), np.uint32)
            self.random_state = seed, step
        x = self.floating()
        self.keep(ops.dropout(x, 0.5, *self.random_state, len(self.pool)), 2 * self.bound[x])

    def smooth(self) -> None:
        x = ops.clip(self.floating(), -4.0, 4.0)
        name, bound = self.pick((("exp", 60.0), ("tanh", 1.0), ("sigmoid", 1.0), ("gelu", 4.0),
                                 ("softplus", 5.0), ("erf", 1.0), ("sin", 1.0)))
        self.keep(getattr(ops, name)(x), bound)

    def rows(self) -> None:
        x = self.value(lambda v: v.dtype.is_float and v.rank > 0 and v.shape[-1] > 1)
        name = self.pick(("softmax", "log_softmax", "mean", "standardize", "logsumexp"))
        if x.rank and x.shape[-1] > 1:
            self.keep(getattr(ops, name)(x), 2 * self.bound[x] + 4.0)

    # -- the result ----------------------------------------------------------------------------

    def graph(self) -> Graph:
        last = self.pool[-int(self.rng.integers(1, 4)):]
        updates: dict[str, Value] = {}
        for state in Graph({str(k): v for k, v in enumerate(last)}).leaves("state"):
            new = [v for v in self.pool if v.shape == state.shape and v.dtype == state.dtype]
            updates[state.attrs["name"]] = self.pick(new or [state])
        return Graph({f"y{k}": v for k, v in enumerate(last)}, updates)


def _fits(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(small, large) == large
    except ValueError:
        return False
