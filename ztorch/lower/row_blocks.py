"""Computes wide values a block of rows at a time, in a loop, so that none lies in memory whole.

    attention of 16,384 positions: a gigabyte of scores a head becomes a block of two megabytes

A loop over each leading axis holds a loop over blocks of rows. What sums along rows is kept of each
turn, and what sums over rows is a state of the loop. Columns that are known to count for nothing,
such as those that causal attention hides, are left out of the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ztorch.dtypes import f32
from ztorch.graph.body import Body, carry_leaf, closed, results_of, slice_leaf
from ztorch.graph.loop import LOOP
from ztorch.graph.op import OPS, constant
from ztorch.graph.value import Graph, Value, layer_scope, topological
from ztorch.ir.limits import Limits
from ztorch.lower.hidden import columns_seen
from ztorch.lower.loops import summing
from ztorch.lower.tuning import (
    BLOCK_ROWS_MAX,
    BLOCK_ROWS_MIN,
    BLOCK_SEGMENTS,
    BLOCK_SHARE,
    GRID_WIDE_BYTES,
    WIDE_BYTES,
    WIDE_RATIO,
    WIDE_STEPS,
)
from ztorch.lower.wide import Group, Table, groups, spreads, tables


@dataclass(frozen=True)
class Operand:
    """What a block reads: a tensor whose leading axes are those of the table, or of size 1."""

    value: Value
    rows: int | None = None  # the axis after the leading ones that has the table's rows
    columns: int | None = None  # the one that has its columns


Use = tuple[Value, str]  # a value, and how it is read


def in_blocks(graph: Graph, limits: Limits) -> Graph:
    """The graph with each wide value that is large for the machine computed in blocks of rows."""
    for table in tables(graph, WIDE_RATIO, WIDE_STEPS):
        if rows := _block_rows(table, limits):
            graph = blocked(graph, table, rows)
    return graph


def _block_rows(table: Table, limits: Limits) -> int:
    """Rows of a block: as many as the second cache holds. 0 where tables are better left whole."""
    row = f32.bytes * table.columns
    size = row * table.rows
    if limits.grid is not None:
        room, least, most = GRID_WIDE_BYTES, GRID_WIDE_BYTES, table.rows
        size *= math.prod(table.batch)
    else:
        room, least = int(limits.processor.l2_bytes * BLOCK_SHARE), WIDE_BYTES
        most = BLOCK_ROWS_MAX
    if size < least:
        return 0
    rows = max(BLOCK_ROWS_MIN, min(most, room // row))
    if table.rows <= rows:
        return table.rows if math.prod(table.batch) > 1 else 0
    return math.ceil(table.rows / math.ceil(table.rows / rows))


def blocked(graph: Graph, table: Table, rows: int) -> Graph:
    """The graph with all that is made of a table's wide products computed in blocks of rows.

    Args:
        graph: The graph.
        table: The shape of the wide values.
        rows: Rows of a block.
    """
    found, order = groups(graph, table)
    if not found:
        return graph
    group_of = {r: group for group in found for r in group.results}
    new: dict[Value, Value] = {}
    for v in order:
        if v in new:
            continue
        if v in group_of:
            new.update(_Loops(group_of[v], new, rows).results())
        elif all(a in new for a in v.args):  # else it is made inside of loops alone
            args = tuple(new[a] for a in v.args)
            new[v] = v if args == v.args else Value(v.op, args, v.attrs, v.shape, v.dtype, v.layer)
    return graph.with_roots(new[r] for r in graph.roots)


class _Loops:
    """The loops that compute one group."""

    def __init__(self, group: Group, new: dict[Value, Value], rows: int):
        self.group, self.table, self.new, self.rows = group, group.table, new, rows
        self.order = [v for v in topological(group.results, group.inputs) if v in group.inner]
        self.operands: dict[Use, Operand] = {}
        for v in (*self.order, *group.results):
            self._find_operands(v)

    def results(self) -> dict[Value, Value]:
        """The group's results, by the values that they take the place of."""
        layer = self.group.results[0].layer
        with layer_scope(layer):
            values = self._over_batch(0, self.operands)
        return {v: OPS.cast(OPS.reshape(y, v.shape), v.dtype)
                for v, y in zip(self.group.results, values, strict=True)}

    # -- what blocks read ------------------------------------------------------------------------

    def _find_operands(self, v: Value) -> None:
        """Adds the operands of a value that is computed in blocks."""
        inner, table = self.group.inner, self.table
        if v in inner and not v.args and "axis" in v.attrs and self._range_axis(v) is not None:
            axis = self._range_axis(v)
            assert axis is not None
            n = v.shape[axis]
            numbers = np.arange(n).reshape([n if k == axis else 1 for k in range(v.rank)])
            self.operands[v, "range"] = self._aligned(constant(numbers, v.dtype))
            return
        for k, a in enumerate(v.args):
            base = a if a in inner else self._inner_transpose(a)
            if base in inner:
                continue
            use = a, self._role(v, k)
            if use in self.operands:
                continue
            x = self.new[a]
            if v.op.kind == "contract":
                self.operands[use] = {
                    "rows": Operand(x, rows=0), "across": Operand(x, rows=1),
                    "steps": Operand(x, columns=1), "whole": Operand(x, columns=0)}[use[1]]
            elif table.is_row(a) and a.rank < len(table.shape):
                self.operands[use] = Operand(x, rows=0)
            else:
                self.operands[use] = self._aligned(x)

    def _role(self, v: Value, k: int) -> str:
        """How a value reads an argument that is no part of the loop."""
        if v.op.kind != "contract":
            return "aligned"
        if v in self.group.inner:
            return "rows" if k == 0 else "steps"
        if k == 0:
            return "across"
        return "whole" if v.args[0] in self.group.inner else "rows"

    def _range_axis(self, v: Value) -> int | None:
        """The axis that a range counts, if blocks differ in it."""
        axis = v.attrs["axis"]
        return axis if axis < len(self.table.batch) + 1 and v.shape[axis] > 1 else None

    def _aligned(self, x: Value) -> Operand:
        """A tensor that broadcasts to the table."""
        rank = len(self.table.shape)
        x = OPS.reshape(x, (*(1,) * (rank - x.rank), *x.shape))
        return Operand(x, rows=0 if x.shape[-2] > 1 else None,
                       columns=1 if x.shape[-1] > 1 else None)

    def _inner_transpose(self, v: Value) -> Value | None:
        return v.args[0] if v not in self.group.inputs and len(v.args) == 1 else None

    # -- loops -----------------------------------------------------------------------------------

    def _over_batch(self, depth: int, operands: dict[Use, Operand]) -> list[Value]:
        """The results without their first `depth` axes: a loop over the next axis."""
        if depth == len(self.table.batch):
            return self._over_rows(operands)
        turns = self.table.batch[depth]
        whole = {u: _first(o) for u, o in operands.items() if turns == 1 or o.value.shape[0] == 1}
        moving = [u for u in operands if u not in whole]

        def turn(slices: Sequence[Value]) -> list[Value]:
            own = {u: replace(operands[u], value=s) for u, s in zip(moving, slices, strict=True)}
            return self._over_batch(depth + 1, whole | own)

        if turns == 1:
            return [OPS.reshape(y, (1, *y.shape)) for y in turn(())]
        return _loop(turns, [operands[u].value for u in moving], turn)

    def _over_rows(self, operands: dict[Use, Operand]) -> list[Value]:
        """The results of one table, in segments of rows that see as many columns."""
        table = Table((), self.table.rows, self.table.columns)
        columns = columns_seen(self.group, segments(table.rows, self.rows))
        pieces: list[list[Value]] = []
        for (start, end), seen in columns.items():
            pieces += self._segment(operands, start, end, seen)
        return [self._joined(r, [piece[k] for piece in pieces])
                for k, r in enumerate(self.group.results)]

    def _joined(self, result: Value, pieces: list[Value]) -> Value:
        """A result of all segments."""
        if self._over(result):
            total = pieces[0]
            for piece in pieces[1:]:
                total = total + piece
            return total if result.args[1] in self.group.inner else OPS.transpose(total)
        return OPS.concat(*pieces, axis=0) if len(pieces) > 1 else pieces[0]

    def _over(self, result: Value) -> bool:
        """Whether a result sums over rows."""
        return result.op.kind == "contract" and result.args[0] not in self.group.inner

    def _segment(self, operands: dict[Use, Operand], start: int, end: int,
                 columns: int) -> list[list[Value]]:
        """The results of some rows: a loop of whole blocks, and the rows that are left."""
        turns = (end - start) // self.rows
        middle = start + turns * self.rows
        pieces: list[list[Value]] = []
        cropped = {u: _part(o, o.columns, 0, columns) for u, o in operands.items()}
        if turns > 1:
            pieces.append(self._blocks(cropped, start, turns, columns))
        elif turns:
            end, middle = end, start
        if middle < end:
            rest = {u: _part(o, o.rows, middle, end) for u, o in cropped.items()}
            pieces.append([self._padded(r, y, columns) for r, y in zip(
                self.group.results, self._block({u: o.value for u, o in rest.items()},
                                                end - middle, columns), strict=True)])
        return pieces

    def _blocks(self, operands: dict[Use, Operand], start: int, turns: int,
                columns: int) -> list[Value]:
        """The results of so many whole blocks."""
        moving = [u for u, o in operands.items() if o.rows is not None]
        sequences = []
        for u in moving:
            o = operands[u]
            x = _part(o, o.rows, start, start + turns * self.rows).value
            x = OPS.transpose(x) if o.rows == 1 else x
            sequences.append(OPS.reshape(x, (turns, self.rows, *x.shape[1:])))
        whole = {u: o.value for u, o in operands.items() if u not in moving}
        over = [k for k, r in enumerate(self.group.results) if self._over(r)]
        shapes = self._over_shapes(operands, columns)
        carries = [carry_leaf(s, k) for k, s in enumerate(shapes)]
        slices = [slice_leaf(s, k) for k, s in enumerate(sequences)]
        own = {u: OPS.transpose(s) if operands[u].rows == 1 else s
               for u, s in zip(moving, slices, strict=True)}
        values = self._block(whole | own, self.rows, columns)
        news = tuple(c + values[k] for c, k in zip(carries, over, strict=True))
        outs = tuple(y for k, y in enumerate(values) if k not in over)
        body = Body(turns, False, tuple(carries), tuple(slices), (), news, outs)
        body, shared = closed(body)
        last, stacks = results_of(LOOP(*shapes, *sequences, *shared, body=body))
        sums, kept = iter(last), iter(stacks)
        return [self._padded(r, next(sums), columns) if self._over(r) else _joined_rows(next(kept))
                for r in self.group.results]

    def _over_shapes(self, operands: dict[Use, Operand], columns: int) -> list[Value]:
        """Zeros like the sums over rows."""
        zeros = []
        for r in self.group.results:
            if self._over(r):
                other = next(a for a in r.args if a in self.group.inputs)
                use = (other, self._role(r, r.args.index(other)))
                o = operands[use]
                n = o.value.shape[1 - o.rows] if o.rows is not None else 0
                zeros.append(OPS.full((n, columns), 0, summing(r.dtype)))
        return zeros

    def _padded(self, result: Value, y: Value, columns: int) -> Value:
        """A sum over rows with all columns of the table."""
        rest = self.table.columns - columns
        return OPS.pad(y, (0, 0), (0, rest)) if rest and self._over(result) else y

    # -- one block -------------------------------------------------------------------------------

    def _block(self, given: dict[Use, Value], rows: int, columns: int) -> list[Value]:
        """The results of one block. Sums over rows are (what the other operand has, columns)."""
        made: dict[Value, Value] = {}
        for v in self.order:
            with layer_scope(v.layer):
                made[v] = self._made(v, given, made, rows, columns)
        return [made[r] if r in made else self._left(r, given, made) for r in self.group.results]

    def _left(self, v: Value, given: dict[Use, Value], made: dict[Value, Value]) -> Value:
        """A product of a wide value that is small again."""
        a, b = v.args
        wide, factor = _without_factor(a if a in made else b if b in made else a.args[0], made)
        if a in made:
            y = v.op(made[wide], given[b, "whole"], **v.attrs)
            return y if factor is None else y * OPS.broadcast_to(factor, y.shape)
        attrs = {"dtype": summing(v.dtype)} if summing(v.dtype) is not v.dtype else v.attrs
        other = OPS.transpose(given[a, "across"]) if b in made else given[b, "rows"]
        if factor is not None:
            other = other * OPS.broadcast_to(factor, other.shape)
        return v.op(OPS.transpose(other), made[wide], **attrs)

    def _made(self, v: Value, given: dict[Use, Value], made: dict[Value, Value], rows: int,
              columns: int) -> Value:
        """A value of the block."""
        if v.shape == self.table.shape:
            shape: tuple[int, ...] = (rows, columns)
        else:
            shape = (rows, 1) if v.rank == len(self.table.shape) else (rows,)
        if (v, "range") in given:
            return OPS.broadcast_to(given[v, "range"], shape)
        if not v.args:
            attrs = v.attrs | {"shape": shape}
            if "axis" in attrs:
                attrs["axis"] -= len(self.table.batch)
            return v.op(**attrs)
        args = tuple(made[a] if a in made else given[a, self._role(v, k)]
                     for k, a in enumerate(v.args))
        if v.op.kind == "reduce":
            return v.op(*args, axes=(1,))
        if spreads(v):
            return OPS.broadcast_to(args[0], shape)
        if v.op.movement:
            return OPS.reshape(args[0], shape)
        return Value(v.op, args, v.attrs, shape, v.dtype)


def _without_factor(wide: Value, made: dict[Value, Value]) -> tuple[Value, Value | None]:
    """A wide value as another one times a factor for each row: it is cheaper to multiply what a
    product makes of it."""
    if wide.op.opcode == "mul":
        for x, spread in (wide.args, wide.args[::-1]):
            if x in made and spread in made and spreads(spread) and spread.args[0] in made and (
                    spread.args[0].dtype == x.dtype) and spread.args[0].shape[-1] == 1 and (
                    spread.args[0].shape[:-1] == x.shape[:-1]):
                return x, made[spread.args[0]]
    return wide, None


def segments(rows: int, block: int) -> list[tuple[int, int]]:
    """Ranges of rows whose blocks may see different columns: each of whole blocks but the last.

    >>> segments(100, 10)
    [(0, 30), (30, 60), (60, 90), (90, 100)]
    """
    size = math.ceil(math.ceil(rows / block) / BLOCK_SEGMENTS) * block
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]


def _first(o: Operand) -> Operand:
    """An operand without its first axis, which has size 1."""
    return replace(o, value=OPS.reshape(o.value, o.value.shape[1:]))


def _part(o: Operand, axis: int | None, start: int, end: int) -> Operand:
    """A range of an operand along an axis; all of it where it lacks the axis."""
    shape = o.value.shape
    if axis is None or (start, end) == (0, shape[axis]):
        return o
    low = tuple(start if k == axis else 0 for k in range(len(shape)))
    high = tuple(end if k == axis else n for k, n in enumerate(shape))
    return replace(o, value=OPS.slice(o.value, low, (1,) * len(shape),
                                      tuple(h - a for a, h in zip(low, high, strict=True))))


def _joined_rows(stack: Value) -> Value:
    """What is kept of all blocks, as the rows of a table."""
    return OPS.reshape(stack, (stack.shape[0] * stack.shape[1], *stack.shape[2:]))


def _loop(turns: int, sequences: list[Value],
          turn: Callable[[Sequence[Value]], list[Value]]) -> list[Value]:
    """What a function gives for each turn, stacked."""
    slices = [slice_leaf(s, k) for k, s in enumerate(sequences)]
    body = Body(turns, False, (), tuple(slices), (), (), tuple(turn(slices)))
    body, shared = closed(body)
    return results_of(LOOP(*sequences, *shared, body=body))[1]
