"""The loops that compute a group of results a block of rows at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from ztorch.graph.body import Body, carry_leaf, closed, results_of, slice_leaf
from ztorch.graph.loop import LOOP
from ztorch.graph.op import OPS
from ztorch.graph.value import Value, layer_scope, topological
from ztorch.lower.loops import summing
from ztorch.lower.rewrites.block_operands import BlockOperand, BlockOperands, Use
from ztorch.lower.rewrites.large_intermediates import Group, is_broadcast
from ztorch.lower.rewrites.masked_columns import visible_columns
from ztorch.lower.tuning import BLOCK_SEGMENTS, BLOCK_SEGMENTS_MAX, SEGMENT_BLOCKS


class BlockLoops:
    """The loops that compute one group."""

    def __init__(self, group: Group, new: dict[Value, Value], rows: int):
        self.group, self.shape, self.rows = group, group.shape, rows
        outside = group.inputs.keys() - group.inner  # a product may read what blocks compute, too
        self.order = [v for v in topological(group.results, outside) if v in group.inner]
        self.operands = BlockOperands(group, self.order, new)

    def results(self) -> dict[Value, Value]:
        """The group's results, by the values that they replace."""
        layer = self.group.results[0].layer
        with layer_scope(layer):
            values = self._over_batch(0, self.operands.by_use)
        return {v: OPS.cast(OPS.reshape(y, v.shape), v.dtype)
                for v, y in zip(self.group.results, values, strict=True)}

    # -- loops -----------------------------------------------------------------------------------

    def _over_batch(self, depth: int, operands: dict[Use, BlockOperand]) -> list[Value]:
        """The results without their first `depth` axes: a loop over the next axis."""
        if depth == len(self.shape.batch):
            return self._over_rows(operands)
        trip_count = self.shape.batch[depth]
        constant = {u: o.first() for u, o in operands.items()
                    if trip_count == 1 or o.value.shape[0] == 1}
        moving = [u for u in operands if u not in constant]

        def iteration(slices: Sequence[Value]) -> list[Value]:
            sliced = {u: replace(operands[u], value=s) for u, s in zip(moving, slices, strict=True)}
            return self._over_batch(depth + 1, constant | sliced)

        if trip_count == 1:
            return [OPS.reshape(y, (1, *y.shape)) for y in iteration(())]
        return _loop(trip_count, [operands[u].value for u in moving], iteration)

    def _over_rows(self, operands: dict[Use, BlockOperand]) -> list[Value]:
        """The results of one matrix, in segments of rows that use the same columns."""
        summed = any(self._over(r) for r in self.group.results)  # each segment keeps its own sums
        most = BLOCK_SEGMENTS if summed else BLOCK_SEGMENTS_MAX
        parts = segments(self.shape.rows, self.rows, most)
        columns = visible_columns(self.group, parts)
        pieces: list[list[Value]] = []
        for (start, end), uses in columns.items():
            pieces += self._segment(operands, start, end, uses)
        return [self._joined(r, [piece[k] for piece in pieces])
                for k, r in enumerate(self.group.results)]

    def _joined(self, result: Value, pieces: list[Value]) -> Value:
        """A result, joined from the pieces of all segments."""
        if self._over(result):
            total = pieces[0]
            for piece in pieces[1:]:
                total = total + piece
            return OPS.transpose(total) if self.group.large_side(result) else total
        return OPS.concat(*pieces, axis=0) if len(pieces) > 1 else pieces[0]

    def _over(self, result: Value) -> bool:
        """Whether a result sums over rows."""
        return result.op.kind == "contract" and result.args[0] not in self.group.derived

    def _segment(self, operands: dict[Use, BlockOperand], start: int, end: int,
                 columns: int) -> list[list[Value]]:
        """The results of a range of rows: a loop over whole blocks, and the remaining rows."""
        trip_count = (end - start) // self.rows
        middle = start + trip_count * self.rows
        pieces: list[list[Value]] = []
        cropped = {u: o.first_columns(columns) for u, o in operands.items()}
        if trip_count > 1:
            pieces.append(self._blocks(cropped, start, trip_count, columns))
        elif trip_count:
            end, middle = end, start
        if middle < end:
            rest = {u: o.part_of_rows(middle, end) for u, o in cropped.items()}
            pieces.append([self._padded(r, y, columns) for r, y in zip(
                self.group.results, self._block({u: o.value for u, o in rest.items()},
                                                end - middle, columns), strict=True)])
        return pieces

    def _blocks(self, operands: dict[Use, BlockOperand], start: int, trip_count: int,
                columns: int) -> list[Value]:
        """The results of `trip_count` whole blocks."""
        moving = [u for u, o in operands.items() if o.rows is not None]
        sequences = []
        for u in moving:
            o = operands[u]
            x = o.part_of_rows(start, start + trip_count * self.rows).value
            x = OPS.transpose(x) if o.rows == 1 else x
            sequences.append(OPS.reshape(x, (trip_count, self.rows, *x.shape[1:])))
        constant = {u: o.value for u, o in operands.items() if u not in moving}
        over = [k for k, r in enumerate(self.group.results) if self._over(r)]
        shapes = self._over_shapes(operands, columns)
        carries = [carry_leaf(s, k) for k, s in enumerate(shapes)]
        slices = [slice_leaf(s, k) for k, s in enumerate(sequences)]
        sliced = {u: OPS.transpose(s) if operands[u].rows == 1 else s
                  for u, s in zip(moving, slices, strict=True)}
        values = self._block(constant | sliced, self.rows, columns)
        news = tuple(c + values[k] for c, k in zip(carries, over, strict=True))
        outs = tuple(y for k, y in enumerate(values) if k not in over)
        body = Body(trip_count, False, tuple(carries), tuple(slices), (), news, outs)
        body, shared = closed(body)
        last, stacks = results_of(LOOP(*shapes, *sequences, *shared, body=body))
        sums, stacked = iter(last), iter(stacks)
        return [self._padded(r, next(sums), columns) if self._over(r) else
                _joined_rows(next(stacked))
                for r in self.group.results]

    def _over_shapes(self, operands: dict[Use, BlockOperand], columns: int) -> list[Value]:
        """Zeros in the shapes of the sums over rows."""
        zeros = []
        for r in self.group.results:
            if self._over(r):
                side = 1 - self.group.large_side(r)
                o = operands[r.args[side], self.operands.role(r, side)]
                n = o.value.shape[1 - o.rows] if o.rows is not None else 0
                zeros.append(OPS.full((columns, n), 0, summing(r.dtype)))
        return zeros

    def _padded(self, result: Value, y: Value, columns: int) -> Value:
        """A sum over rows, padded to all columns."""
        rest = self.shape.columns - columns
        return OPS.pad(y, (0, 0), (rest, 0)) if rest and self._over(result) else y

    # -- one block -------------------------------------------------------------------------------

    def _block(self, read: dict[Use, Value], rows: int, columns: int) -> list[Value]:
        """The results of one block. Sums over rows have shape (columns, axes of the other
        operand)."""
        made: dict[Value, Value] = {}
        for v in self.order:
            with layer_scope(v.layer):
                made[v] = self._made(v, read, made, rows, columns)
        return [made[r] if r in made else self._small_product(r, read, made)
                for r in self.group.results]

    def _small_product(self, v: Value, read: dict[Use, Value], made: dict[Value, Value]) -> Value:
        """A product of a large intermediate whose result is small."""
        a, b = v.args
        side = self.group.large_side(v)
        large = v.args[side] if v.args[side] in self.group.derived else a.args[0]
        matrix, factor = _without_factor(large, made)
        if large is a:
            y = v.op(made[matrix], read[b, "whole"], **v.attrs)
            return y if factor is None else y * OPS.broadcast_to(factor, y.shape)
        attrs = {"dtype": summing(v.dtype)} if summing(v.dtype) is not v.dtype else v.attrs
        other = OPS.transpose(read[a, "across"]) if side else read[b, "rows"]
        if factor is not None:
            other = other * OPS.broadcast_to(factor, other.shape)
        return v.op(OPS.transpose(made[matrix]), other, **attrs)

    def _made(self, v: Value, read: dict[Use, Value], made: dict[Value, Value], rows: int,
              columns: int) -> Value:
        """A value of the block."""
        if v.shape == self.shape.sizes:
            shape: tuple[int, ...] = (rows, columns)
        else:
            shape = (rows, 1) if v.rank == len(self.shape.sizes) else (rows,)
        if (v, "range") in read:
            return OPS.broadcast_to(read[v, "range"], shape)
        if not v.args:
            attrs = v.attrs | {"shape": shape}
            if "axis" in attrs:
                attrs["axis"] -= len(self.shape.batch)
            return v.op(**attrs)
        args = tuple(made[a] if a in made and v.op.kind != "contract" else
                     read[a, self.operands.role(v, k)] for k, a in enumerate(v.args))
        if v.op.kind == "reduce":
            return v.op(*args, axes=(1,))
        if is_broadcast(v):
            return OPS.broadcast_to(args[0], shape)
        if v.op.movement:
            return OPS.reshape(args[0], shape)
        return Value(v.op, args, v.attrs, shape, v.dtype)


def _without_factor(matrix: Value, made: dict[Value, Value]) -> tuple[Value, Value | None]:
    """A large intermediate without a factor for each row, and that factor: it is cheaper to
    multiply the product's result by it."""
    if matrix.op.opcode != "mul":
        return matrix, None
    for x, broadcast in (matrix.args, matrix.args[::-1]):
        if x in made and broadcast in made and is_broadcast(broadcast):
            [factor] = broadcast.args
            if factor in made and factor.dtype == x.dtype and factor.shape == (*x.shape[:-1], 1):
                return x, made[factor]
    return matrix, None


def segments(rows: int, block: int, most: int) -> list[tuple[int, int]]:
    """Ranges of rows whose blocks may use different columns. Each has whole blocks, at least two,
    except the last. Where blocks are many there are `most` segments, which skip more masked
    columns.

    >>> segments(100, 10, 4)
    [(0, 30), (30, 60), (60, 90), (90, 100)]
    >>> segments(40, 10, 4)
    [(0, 20), (20, 40)]
    >>> len(segments(1280, 10, 8))
    8
    """
    blocks = math.ceil(rows / block)
    count = max(BLOCK_SEGMENTS, min(most, blocks // SEGMENT_BLOCKS))
    size = max(2, math.ceil(blocks / count)) * block
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]


def _order_inside(x: Value) -> tuple[int, ...]:
    """The order of the axes of each part of a sequence if it is a transposed one; empty if not."""
    axes = x.attrs["axes"] if x.op.name == "transpose" else (1,)
    return () if axes[0] else tuple(a - 1 for a in axes[1:])


def _joined_rows(stack: Value) -> Value:
    """A stack of blocks as the rows of one matrix."""
    return OPS.reshape(stack, (stack.shape[0] * stack.shape[1], *stack.shape[2:]))


def _loop(trip_count: int, sequences: list[Value],
          iteration: Callable[[Sequence[Value]], list[Value]]) -> list[Value]:
    """The results of a function for each iteration, stacked. Reshapes at its end are those of the
    stacks, so that a loop inside stores its results there. Sequences are transposed inside, where
    a product packs them."""
    orders = [_order_inside(s) for s in sequences]
    sequences = [s.args[0] if order else s for s, order in zip(sequences, orders, strict=True)]
    slices = [slice_leaf(s, k) for k, s in enumerate(sequences)]
    results = iteration([OPS.transpose(s, order) if order else s
                         for s, order in zip(slices, orders, strict=True)])
    outs = tuple(y.args[0] if y.op.name == "reshape" else y for y in results)
    body = Body(trip_count, False, (), tuple(slices), (), (), outs)
    body, shared = closed(body)
    stacks = results_of(LOOP(*sequences, *shared, body=body))[1]
    return [OPS.reshape(s, (trip_count, *y.shape)) for s, y in zip(stacks, results, strict=True)]
