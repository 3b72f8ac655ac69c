"""Ops of `zt.ops` in kernels: an op of one iteration becomes an op of all iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ztorch.errors import Unsupported
from ztorch.graph.batching import vectorized
from ztorch.graph.op import REGISTRY, leaf
from ztorch.graph.rewrite import substituted
from ztorch.graph.trees import flatten, unflatten
from ztorch.graph.value import Value, topological
from ztorch.kernels.arithmetic import TileArithmetic
from ztorch.kernels.tile_functions import BadCall
from ztorch.kernels.tiles import Affine, Axes, LoopTensor, spread, union


def library_op(function: Any) -> str | None:
    """The name of the op that a function of `zt.ops` means; None for other functions."""
    name = getattr(function, "op_name", None)
    return name if isinstance(name, str) and name in REGISTRY else None


def apply_op(a: TileArithmetic, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Calls an op on tiles, indices and numbers.

    Args:
        a: The operations of the kernel.
        function: The op, a function of `zt.ops` that takes values of a graph.
        *args: Its arguments; tiles and indices are tensors, everything else is passed on.
        **named: Its arguments by name.

    Returns:
        A tile, or a tree of tiles for an op with several results.
    """
    leaves, tree = flatten((args, named))
    name = function.op_name  # type: ignore[attr-defined]
    tiles = _tiles(a, REGISTRY[name].primitive, leaves)
    one = {k: leaf("input", f"x{k}", t.shape, t.dtype) for k, t in tiles.items()}
    if not tiles:
        raise BadCall(f"zt.ops.{name} gets constants alone; compute it outside of the kernel, and "
                      "refer to the result")
    arguments, options = unflatten(tree, iter(one.get(k, x) for k, x in enumerate(leaves)))
    try:
        results, kind = flatten(function(*arguments, **options))
    except TypeError as error:
        raise BadCall(str(error)) from None
    many = _for_all_iterations(results, list(one.values()), list(tiles.values()))
    return unflatten(kind, iter(many))


def check_numbers(name: str, results: Any) -> None:
    """Raises if an op does not make numbers of numbers, as a thread does."""
    for v in topological(y.value for y in flatten(results)[0]):
        if v.shape or v.op.kind not in ("leaf", "map"):
            raise BadCall(f"zt.ops.{name} works on arrays; here it takes an op that computes each "
                          "element by itself, such as zt.ops.gelu")


def _tiles(a: TileArithmetic, primitive: Any, leaves: Sequence[Any]) -> dict[int, LoopTensor]:
    """The arguments that are tensors, by position. Python's numbers take the dtype beside them."""
    tiles = {k: a.tile(x) for k, x in enumerate(leaves) if isinstance(x, (LoopTensor, Affine))}
    elementwise = primitive is not None and primitive.kind == "map" and primitive.opcode
    together = a.common(list(tiles.values()))
    for k, t in tiles.items():
        if t.weak and (elementwise or t.dtype.is_float):
            tiles[k] = a.cast(t, together)
    return tiles


def _for_all_iterations(results: Sequence[Value], leaves: list[Value],
                        tiles: Sequence[LoopTensor]) -> list[LoopTensor]:
    """The results for all iterations of the loops that the tiles depend on, inner loops first."""
    ys = list(results)
    axes: list[Axes] = [()] * len(ys)
    for v in reversed(union(t.axes for t in tiles)):
        examples: dict[Value, Value] = {}
        for k, t in enumerate(tiles):
            if v in t.axes:
                old = leaves[k]
                leaves[k] = leaf("input", f"x{k}", (v.extent, *old.shape), old.dtype)
                examples[old] = leaves[k]
        try:
            many = vectorized(ys, examples, v.extent)
        except Unsupported as error:
            raise BadCall(str(error).replace("zt.vmap", "a kernel")) from None
        axes = [(v, *own) if y in many else own for y, own in zip(ys, axes, strict=True)]
        ys = [many.get(y, y) for y in ys]
    values = substituted(ys, {x: spread(t, t.axes) for x, t in zip(leaves, tiles, strict=True)})
    return [LoopTensor(y, own) for y, own in zip(values, axes, strict=True)]
