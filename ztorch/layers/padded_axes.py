"""The effect of each op on padded axes: it keeps them, moves them, or mixes them into results.

A padded axis is identified by its place, as `axis_movement.py` explains. Masks differ between rows,
so the place of the batch is recorded as well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Value, topological
from ztorch.layers.axis_movement import keeps_places, moved_place, movement, place
from ztorch.real_sizes import OpenAxis, Step, multiple, real_size


@dataclass(frozen=True, eq=False)
class Mask:
    """The real positions of an axis."""

    axis: str  # name of the axis, for errors and ports
    value: Value  # bool (batch, size): true where a position is real
    steps: tuple[Step, ...] = ()  # from the size of the whole axis to the size of this one
    made: tuple[Mask, Step] | None = None  # source and step, if derived from another axis
    of_rows: Mask | None = None  # for steps as rows: the mask of the rows that contain the steps

    @property
    def batch(self) -> int:
        """The number of rows of the batch."""
        return self.value.shape[0]

    @property
    def size(self) -> int:
        """The size of the axis."""
        return self.value.shape[1]


# The padded axes of a tensor: masks, by the products of the sizes of all axes before the batch and
# before the padded axis. For a batch of one row, the former product is 1.
Place = tuple[int, int]
Padded = dict[Place, Mask]


def padded_axes(v: Value, args: list[Padded], multiples: dict[str, int]) -> Padded:
    """The padded axes of a value, from those of its arguments.

    Args:
        v: The value.
        args: The padded axes of each argument.
        multiples: For each axis name, a number that its sizes are multiples of. Joining tensors
            whose sizes are only equal for certain multiples adds that number.

    Raises:
        Unsupported: The op mixes positions along a padded axis.
    """
    if not any(args):
        return {}
    moved = moved_axes(v, args)
    padded = None if moved is None else _joined(moved, multiples)
    if padded is None:
        raise mixed(v, args)
    return padded


def moved_axes(v: Value, args: list[Padded]) -> list[Padded] | None:
    """The padded axes of a value, as seen by each argument; None if the op mixes positions."""
    if not any(args):
        return args
    if v.op.name == "reshape":
        return _reshape(v, args)
    if v.op.name == "custom_gradient":
        return args[:1] if _rule_keeps_places(v, args) else None
    if movement(v, 0) is not None:
        return _along(v, args)
    return args if v.op.kind == "rows" or keeps_places(v) else None


def _rule_keeps_places(v: Value, args: list[Padded]) -> bool:
    """Whether the gradient rule of a value mixes no positions along padded axes either. Rules
    within the rule are for second derivatives, which training needs not."""
    upstream, count = leaf("input", "upstream", v.shape, v.dtype), v.attrs["count"]
    slopes = v.attrs["rule"]([upstream], v.args[1:1 + count], v.args[1 + count:])
    known: dict[Value, Padded] = {**dict(zip(v.args, args, strict=True)), upstream: args[0]}
    for node in topological([s for s in slopes if s is not None], {*known}):
        if node in known:
            continue
        parts = [known.get(a, {}) for a in node.args]
        moved = parts[:1] if node.op.name == "custom_gradient" else moved_axes(node, parts)
        if moved is None:
            return False
        known[node] = {at: mask for part in moved for at, mask in part.items()}
    return all(s is None or known[s].keys() == known[a].keys()
               for s, a in zip(slopes, v.args[1:], strict=False))


def mixed(v: Value, args: list[Padded]) -> Unsupported:
    """The error for a value that mixes padding into results."""
    names = dict.fromkeys(mask.axis for padded in args for mask in padded.values())
    where = f"layer {v.layer!r}" if v.layer else "the model"
    masks = {mask for padded in args for mask in padded.values()}
    if pair := _different(args):
        a, b = (axis.formula for axis in pair)
        return Unsupported(f"{where} joins tensors of different sizes, {a} and {b}, with op "
                           f"{v.op.name}: compute both with layers of the same strides and padding")
    if len(names) > 1 and not any(len(padded) == len(masks) for padded in args):
        return Unsupported(f"{where} combines axes {' and '.join(map(repr, names))}, whose sizes "
                           "vary independently, with op "
                           f"{v.op.name}; give both Inputs the same name for the axis")
    return Unsupported(
        f"{where} would mix padding into its result: op {v.op.name} combines positions along axis "
        f"{next(iter(names))!r}, whose size varies. Use a layer that hides padding, such as "
        "MultiHeadAttention, GlobalAveragePooling1D or Conv1D(padding='causal'), or give the Input "
        "a fixed size")


def _different(args: list[Padded]) -> tuple[OpenAxis, OpenAxis] | None:
    """An axis in one argument, and the same axis in another argument where its size differs for all
    multiples of small numbers; None if there is none."""
    first: dict[tuple[Place, str], tuple[Step, ...]] = {}
    for padded in args:
        for at, mask in padded.items():
            a = OpenAxis(mask.axis, first.setdefault((at, mask.axis), mask.steps))
            b = OpenAxis(mask.axis, mask.steps)
            if multiple(a, b) is None:
                return a, b
    return None


def _moved(v: Value, x: Value, padded: Padded, axis_of: Callable[[int], int]) -> Padded:
    """The padded axes of x, where axis k of x is axis `axis_of(k)` of v."""
    return {(1 if mask.batch == 1 else moved_place(v, x, rows, mask.batch, axis_of),
             moved_place(v, x, at, mask.size, axis_of)): mask
            for (rows, at), mask in padded.items()}


def padded_parts(x: Value, padded: Padded) -> set[int]:
    """The axes of a tensor that are padded or contain a padded part."""
    return {place(x, before, mask.size)[0] for (_, before), mask in padded.items()}


def _axes(x: Value, padded: Padded) -> set[int]:
    """The padded axes and the batch axis, which no op may mix with others."""
    return padded_parts(x, padded) | {place(x, rows, mask.batch)[0] for (rows, _), mask in
                                      padded.items() if mask.batch > 1}


def spread_parts(mask: Mask, at: Place, shape: tuple[int, ...]) -> Value:
    """A mask as a tensor that broadcasts to a given shape. The places of the batch and the padded
    axis are axes or parts of axes."""
    rows, before = at
    ends = {rows, rows * mask.batch, before, before * mask.size} if mask.batch > 1 else {
        before, before * mask.size}
    split, joined, small, outer = [], [], [], 1  # sizes of all parts; of axes; of the mask's parts
    for n in shape:
        bounds = [outer, *sorted(b for b in ends if outer < b < outer * n), outer * n]
        parts = [b // a for a, b in itertools.pairwise(bounds)]
        own = [(mask.batch > 1 and a == rows and size > 1) or (a == before and size > 1)
               for a, size in zip(bounds, parts, strict=False)]
        small += [size if mine else 1 for size, mine in zip(parts, own, strict=True)]
        split += [size if any(own) else 1 for size in parts]
        joined.append(math.prod(split[-len(parts):]))
        outer *= n
    value = mask.value if rows <= before or mask.batch == 1 else OPS.transpose(mask.value)
    wide = OPS.broadcast_to(OPS.reshape(value, tuple(small)), tuple(split))
    return OPS.reshape(wide, tuple(joined))


def _joined(parts: list[Padded], multiples: dict[str, int]) -> Padded | None:
    """The padded axes of several tensors of one shape; None if one axis has two masks. If they are
    equal for multiples of a number, as with a skip connection around two halvings, the number is
    recorded, and the mask with fewer steps is kept."""
    joined: Padded = {}
    for padded in parts:
        for at, mask in padded.items():
            other = joined.setdefault(at, mask)
            if other is mask:
                continue
            of = None if other.axis != mask.axis or other.value.shape != mask.value.shape else (
                multiple(OpenAxis(mask.axis, mask.steps), OpenAxis(mask.axis, other.steps)))
            if of is None:
                return None
            multiples[mask.axis] = math.lcm(multiples.get(mask.axis, 1), of)
            joined[at] = min(other, mask, key=lambda m: len(m.steps))
    return joined if len({rows for rows, _ in joined}) <= 1 else None


def _reshape(v: Value, args: list[Padded]) -> list[Padded] | None:
    """The order of elements stays. A later axis may not merge with a padded one, unless it is
    padded as well, or the batch; and neither a padded axis nor the batch may be split."""
    padded = args[0]
    sizes = {rows: mask.batch for (rows, _), mask in padded.items() if mask.batch > 1}
    sizes |= {before: mask.size for (_, before), mask in padded.items()}
    ends = {math.prod(v.shape[:k + 1]): math.prod(v.shape[:k]) for k in range(v.rank)
            if v.shape[k] > 1}

    def start(before: int, size: int) -> int:
        """The start of the axis whose last part this is, together with other padded axes and the
        batch."""
        end = before * size
        while end not in ends and end in sizes:
            end *= sizes[end]
        return ends.get(end, end)

    def is_whole(rows: int, batch: int) -> bool:
        return batch == 1 or any(rows % outer == 0 and end % (rows * batch) == 0
                                 for end, outer in ends.items() if outer <= rows < end)

    fits = all(start(before, mask.size) <= before and is_whole(rows, mask.batch)
               for (rows, before), mask in padded.items())
    return [padded] if fits else None


def _along(v: Value, args: list[Padded]) -> list[Padded] | None:
    """By the movement of each argument; None if it changes a padded axis or the batch, or if both
    the table and the indices of a lookup have padding."""
    if v.op.name == "take" and all(args):
        return None
    moved = []
    for k, (x, padded) in enumerate(zip(v.args, args, strict=True)):
        move = movement(v, k)
        assert move is not None
        varying = padded if v.op.name != "slice" else {
            at: mask for at, mask in padded.items() if not _is_first(v, x, at[1], mask)}
        fixed = _axes(x, padded) - (padded_parts(x, padded) - padded_parts(x, varying))
        if (move.summed | move.changed) & fixed:
            return None
        moved.append(_moved(v, x, varying, move.axis_of))
    return moved


def _is_first(v: Value, x: Value, before: int, mask: Mask) -> bool:
    """Whether a slice keeps only the first position of a padded axis, which every row has."""
    axis, inner = place(x, before, mask.size)
    alone = v.attrs["start"][axis] == 0 and v.shape[axis] == 1 and x.shape[axis] == mask.size
    return bool(alone and inner == 1 and real_size(1, mask.steps) and mask.of_rows is None)
