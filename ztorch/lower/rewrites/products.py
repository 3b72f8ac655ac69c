"""Prepares matrix products: packs operands for tiles, and splits products."""

from __future__ import annotations

import math

from ztorch.dtypes import f32
from ztorch.graph.narrow import narrowed
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.ir.limits import GridLimits, Limits
from ztorch.lower.cpu.l1_conflicts import padded_copy, padded_rows, pays_to_pad
from ztorch.lower.cpu.left_operand import access_pattern
from ztorch.lower.cpu.packed_panels import pack, panel_columns
from ztorch.lower.cpu.strides import (
    has_bad_rows,
    is_readable,
    offsets_of,
    packs_in_block,
    step_distance,
)
from ztorch.lower.cpu.tile_borders import share_inside
from ztorch.lower.cpu.tiling import choose, copy_cycles, product_cycles
from ztorch.lower.grid.mma import shape_for
from ztorch.lower.grid.operands import has_border, is_copied
from ztorch.lower.grid.pitches import Pitches
from ztorch.lower.grid.split_k import cut_up, parts_of, short_parts, summed
from ztorch.lower.grid.stream_tiles import gains_over_parts
from ztorch.lower.grid.window_axes import seen_through
from ztorch.lower.grid.window_tiles import cut_of, estimated
from ztorch.lower.index import Index, Var
from ztorch.lower.region import COPY, view_of, without_copies
from ztorch.lower.rewrites.deep_products import depth_of_parts, in_sums, is_deep
from ztorch.lower.rewrites.few_channels import FewChannels
from ztorch.lower.rewrites.frozen import Derived
from ztorch.lower.rewrites.integer_products import in_words
from ztorch.lower.rewrites.quantized_products import of_integers
from ztorch.lower.rewrites.split_floats import SplitFloats
from ztorch.lower.rewrites.split_reductions import split_reduction, widened
from ztorch.lower.rewrites.split_windows import SplitWindows
from ztorch.lower.rewrites.sums_of_products import (
    sums_along_rows,
    sums_down_columns,
    sums_over_k,
)
from ztorch.lower.rewrites.winograd import transformed
from ztorch.lower.tuning import (
    COPY_COLUMNS,
    COPY_GAIN,
    L1_SHARE,
    LINE_BYTES,
    NARROW_ROWS,
    PRODUCT_DEPTH,
    SPLIT_DEPTH,
    WINDOW_ROWS,
    WINDOW_UNITS,
)


class ProductRewrites:
    """The products of one graph, which share prepared operands."""

    def __init__(self, limits: Limits, often: bool, derived: Derived | None, in_chains: bool):
        """`often`: to pack fixed operands costs nothing. `in_chains`: those of rows stay whole."""
        self.limits, self.often, self.derived, self.in_chains = limits, often, derived, in_chains
        self.narrow: dict[Value, Value] = {}  # operands in 16 bits
        self.views: dict[Value, Value] = {}  # operands as views alone, without copies
        self.packed: dict[tuple[Value, int], Value] = {}  # by the columns of panels
        self.padded: dict[Value, Value] = {}  # left operands with padded rows
        self.pitched = Pitches(limits)
        self.split, self.split_windows = SplitFloats(limits), SplitWindows(limits)
        self.few_channels = FewChannels(limits)

    def prepared(self, v: Value, fixed: bool) -> Value:
        """The product with operands that its tiles can read.

        Args:
            v: A product.
            fixed: Whether the right operand is the same at every call.
        """
        limits = self.limits
        a, b = v.args
        k = a.shape[-1]
        if v.shape[-1] == 1:  # rows times one vector: sums along rows
            if limits.grid is None and (totals := sums_down_columns(v)) is not None:
                return totals
            row = OPS.broadcast_to(OPS.reshape(widened(b), (*b.shape[:-2], 1, k)), a.shape)
            y = split_reduction(OPS.sum(OPS.mul(widened(a), row), axis=-1), limits.grid)
            return OPS.cast(OPS.reshape(y, v.shape), v.dtype)
        if limits.grid is not None:
            by_threads = not self.in_chains and shape_for(v, limits) is None
            at_points = (transformed(v, fixed, limits, self.prepared, self._deep)
                         if by_threads else None)
            return self._on_grid(v, limits.grid) if at_points is None else at_points
        if not fixed and (sums := sums_along_rows(v, limits)) is not None:
            return sums
        if limits.lanes(v.dtype) == 1:
            return _product_of(v, COPY(a) if access_pattern(a) is None else a,
                               COPY(b) if offsets_of(b) is None else b)
        at_points = transformed(v, fixed, limits, self.prepared, self._deep)
        if at_points is not None:
            return at_points
        total = of_integers(v, lambda part: self.prepared(part, fixed))
        if total is None and is_deep(v):
            return self._in_parts(v, fixed)
        if total is None:
            total = in_words(v, limits, lambda part: self._tiled(part, fixed))
        return self._tiled(v, fixed) if total is None else total

    def _tiled(self, v: Value, fixed: bool) -> Value:
        """The product with operands in place, copied or packed."""
        (a, b), limits = v.args, self.limits
        v = _product_of(v, padded_rows(a, self.padded), b)
        a = _left(v, limits)
        if pays_to_pad(a, v, limits):
            a = padded_copy(a.args[0] if a.op is COPY else a)
        return _product_of(v, a, self._right(v, b, fixed))

    def _right(self, v: Value, b: Value, fixed: bool) -> Value:
        """The right operand of a product as its tiles read it: in place, copied or in panels."""
        limits = self.limits
        m, n, k = *v.shape[-2:], b.shape[-2]
        narrow = narrowed(b, self.narrow) if m <= NARROW_ROWS and fixed else None
        b = b if narrow is None else narrow
        fits_l1 = k * n * b.dtype.bytes <= limits.processor.l1_bytes * L1_SHARE
        derived = self.derived if self.derived is not None and self.derived.lasts(b) else None
        packed_once = fixed and (self.often or derived is not None) and not fits_l1
        must_copy = not is_readable(b)
        bad = has_bad_rows(b, m, v.dtype, limits) and not packs_in_block(b, m, v.dtype, limits)
        if b.rank > 2 or not (packed_once or bad or (
                must_copy and not fits_l1 and n % panel_columns(b, m, limits, v.dtype) == 0)):
            return COPY(b) if must_copy else b
        columns = panel_columns(b, m, limits, v.dtype)
        columns = columns if derived is None else derived.columns(b, columns)
        if (b, columns) not in self.packed:  # several products may have the same right operand
            self.packed[b, columns] = pack(b, columns)
        return self.packed[b, columns]

    def _deep(self, v: Value, fixed: bool) -> Value:
        """A product of transformed numbers, whose sums are short: errors of sums are magnified."""
        k, grid = v.args[0].shape[-1], self.limits.grid
        if grid is None:
            return self._in_parts(v, fixed) if k >= 2 * PRODUCT_DEPTH else self.prepared(v, fixed)
        parts = short_parts(v, grid)
        return summed(self.prepared(cut_up(v, parts), fixed), v) if parts > 1 else (
            self.prepared(v, fixed))

    def _in_parts(self, v: Value, fixed: bool) -> Value:
        """A product of large k as a sum of products whose operands fit the caches. The split
        depends on sizes only, so the order of additions is always the same."""
        (a, b), (*batch, m, n), origin = v.args, v.shape, (0,) * (v.rank - 1)
        k, step = a.shape[-1], (1,) * v.rank
        size, (d, attrs) = depth_of_parts(k), in_sums(v)
        total: Value | None = None
        for start in range(0, k, size):
            depth = min(size, k - start)
            left = OPS.slice(a, (*origin, start), step, (*batch, m, depth))
            right = OPS.slice(b, (*origin[1:], start, 0), step, (*batch, depth, n))
            part = self.prepared(Value(v.op, (left, right), attrs, v.shape, d), fixed)
            total = part if total is None else OPS.add(total, part)
        assert total is not None
        return OPS.cast(total, v.dtype)

    def _on_grid(self, v: Value, grid: GridLimits) -> Value:
        """The product on a grid. One row times a matrix becomes a sum over the matrix's rows. If
        tiles are too few to occupy the machine and k is large, parts of k are separate products
        that are summed afterwards (split-k). The split depends on sizes only."""
        windowed = self._windowed(v, grid)
        if windowed is not None:
            return windowed
        few = self.few_channels(self._as_views(v), lambda part: self._along_k(part, grid))
        if few is not None:
            return few
        bordered = self._bordered(v)
        if bordered is None:
            v = self._in_16_bits(v)
            v = self.split(_product_of(v, *map(without_copies, v.args)))
        else:
            v = bordered
        a, b = v.args
        if v.shape[-2] == 1 or self.in_chains:
            sums = sums_over_k(widened(a), widened(b))
            y = sums if self.in_chains else split_reduction(sums, grid)
            return OPS.cast(OPS.reshape(y, v.shape), v.dtype)
        return self._along_k(_product_of(v, *self.pitched(v)), grid)

    def _along_k(self, v: Value, grid: GridLimits) -> Value:
        """The product, divided along k if its tiles are too few to occupy the machine."""
        k = v.args[0].shape[-1]
        most_parts = parts_of(v, grid, shape_for(v, self.limits))
        parts = next((p for p in range(most_parts, 1, -1) if k % p == 0), 1)
        divided = v if parts == 1 else cut_up(v, parts)
        return v if parts == 1 or gains_over_parts(v, divided, self.limits) else summed(divided, v)

    def _in_16_bits(self, v: Value) -> Value:
        """The product with operands in 16 bits, if that is exact for both."""
        a, b = (narrowed(x, self.narrow) for x in v.args)
        return v if a is None or b is None or a.dtype is not b.dtype else _product_of(v, a, b)

    def _as_views(self, v: Value) -> Value:
        """The product of operands that are views of tensors in memory: padding, windows and copies
        are not stored."""
        self.views |= {x: seen_through(x) for x in v.args if x not in self.views}
        return self._in_16_bits(_product_of(v, *(self.views[x] for x in v.args)))

    def _bordered(self, v: Value) -> Value | None:
        """A product by matrix instructions whose operands have zero padding that threads fill in
        while they copy. None if no operand has padding, or if one cannot be copied."""
        grid = self.limits.grid
        assert grid is not None
        product = self._as_views(v)
        shape = shape_for(product, self.limits) if grid.asynchronous_copies else None
        if shape is None or not any(has_border(product, side) for side in (0, 1)):
            return None
        copied = all(is_copied(product, side, shape.of) for side in (0, 1))
        return product if copied else None

    def _windowed(self, v: Value, grid: GridLimits) -> Value | None:
        """A convolution whose images are copied directly, with zeros outside of them; None if they
        cannot be copied so. If positions are steps along k, images are divided among as many
        products as occupy the machine best."""
        product = self.split_windows(self._as_views(v))
        cut = cut_of(product, self.limits)
        if cut is None or not cut[1].slides:
            return None
        m, n, k = *v.shape[-2:], product.args[0].shape[-1]
        deep = cut[1].contiguous[0] and v.rank == 2
        images = cut[1].k[0].extent if deep else 1
        best: tuple[float, Value] | None = None
        for parts in (p for p in range(1, images + 1) if images % p == 0):
            part = cut_up(product, parts) if parts > 1 else product
            own_cut = cut_of(part, self.limits)
            estimate = estimated(part, *own_cut, self.limits) if own_cut else None
            if estimate is None or (not deep and k >= 2 * SPLIT_DEPTH and (
                    estimate.tiles < WINDOW_UNITS * grid.compute_units)):
                continue
            adding = parts * m * n * 2 * f32.bytes / (grid.unit.l2_bytes * grid.compute_units)
            time = estimate.cycles + (adding if parts > 1 else 0)
            if best is None or time < best[0]:
                best = time, summed(part, v) if parts > 1 else part
        return best[1] if best else None


def _left(v: Value, limits: Limits) -> Value:
    """The left operand of a product as its tiles read it: in place or copied."""
    a, n = v.args[0], v.shape[-1]
    m, k = a.shape[-2:]
    bare = without_copies(a)
    access = access_pattern(bare)
    if access is None or max(access.heights) < min(m, WINDOW_ROWS):
        return COPY(a) if access_pattern(a) is None else a
    row, depth = Var("row", m), Var("k", k)
    base = view_of(bare, (*(Index() for _ in bare.shape[:-2]), Index.of(row), Index.of(depth)))
    if base is None or n < COPY_COLUMNS:
        return bare
    plain, step = choose(m, n, k, limits, v.dtype), base[1].factor(depth)
    best = plain.tile_rows
    line = 2 * best * v.dtype.bytes >= LINE_BYTES and base[1].factor(row) == 1 != step
    if bare.size > base[0].size or line:
        # Elements repeat, for windows overlap; or a tile takes most of a line in each step.
        copied = product_cycles(m, n, k, limits, v.dtype) + copy_cycles(
            bare, limits.processor) / math.prod(v.shape[:-2])
        in_place = share_inside(bare, access) * product_cycles(
            m, n, k, limits, v.dtype, access, step_distance(bare), plain.tile_vectors)
        return COPY(a) if copied < COPY_GAIN * in_place else bare
    # A tile uses few elements of each cache line, and returns to the line only k lines later.
    near = limits.processor.l1_bytes * (L1_SHARE if n >= 2 * COPY_COLUMNS else 1)
    across = step != 1 and k * LINE_BYTES > near
    return COPY(a) if across or best not in access.heights else bare


def _product_of(v: Value, a: Value, b: Value) -> Value:
    """The same product with other operands, which may have fewer bits."""
    if (a, b) == v.args:
        return v
    attrs = v.attrs if {a.dtype, b.dtype} == {v.dtype} else {"dtype": v.dtype}
    return Value(v.op, (a, b), attrs, v.shape, v.dtype)
