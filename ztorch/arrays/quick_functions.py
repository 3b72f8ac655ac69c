"""Native functions for repeated calls of compiled functions: from trees of tensors to trees of
tensors."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from ztorch.arrays.cells import Cell
from ztorch.arrays.node import Handle, TensorNode
from ztorch.arrays.placement import when_default_changes
from ztorch.arrays.quick_calls import Native
from ztorch.arrays.weight_cells import NodesOfNow
from ztorch.backends.matching import Building, Matching
from ztorch.backends.python_calls import slot_offsets
from ztorch.graph.trees import LEAF, TreeBranch

MOST_NATIVES = 16  # native functions of one function, by shapes; the oldest are dropped


class Natives(list[tuple[Native, NodesOfNow | None]]):
    """The native functions of one compiled function, each with the cells whose nodes it takes
    after the arguments."""

    __slots__ = ("__weakref__",)

    def run(self, args: tuple[Any, ...]) -> Any:
        """The results, if one of the functions takes these arguments; else NotImplemented."""
        for native, live in self:
            results = native(args) if live is None else native(args, *live.get())
            if results is not NotImplemented:
                return results
        return NotImplemented


_all: weakref.WeakValueDictionary[int, Natives] = weakref.WeakValueDictionary()


def natives_of_function() -> Natives:
    """An empty list for the native functions of one compiled function. It is cleared when the
    default device changes, because they run on that device."""
    natives = Natives()
    _all[id(natives)] = natives
    return natives


def _forget() -> None:
    for natives in [*_all.values()]:
        natives.clear()


when_default_changes.append(_forget)


def matching_of(args: tuple[Any, ...], live: Sequence[Cell], read: Sequence[Cell],
                captured: Sequence[TensorNode]) -> Matching | None:
    """The matching of arguments like these and of the tensors that the program reads; None if a
    leaf is not a tensor, or if the tree has branches of an unsupported type.

    Args:
        args: The arguments of a function. Its program reads their tensors first.
        live: Cells whose nodes come after the arguments.
        read: All cells that the program reads next.
        captured: The tensors that it reads last.
    """
    m = Matching(1 + len(live))
    if not _match(m, 0, args):
        return None
    node, block = slot_offsets(Cell)["node"], slot_offsets(TensorNode)["block"]
    for cell in read:
        entry = 1 + live.index(cell) if cell in live else m.slot(m.constant(cell), node)
        m.blocks.append(m.slot(entry, block))
    for x in captured:
        m.blocks.append(m.slot(m.constant(x), block))
    return m


def _match(m: Matching, entry: int, tree: Any) -> bool:
    """Matches a tree, in the order of `flatten`."""
    if isinstance(tree, Handle):
        at = slot_offsets(TensorNode)
        m.kind(entry, type(tree))
        own = m.slot(entry, slot_offsets(Handle)["node"])
        m.same(m.slot(own, at["spec"]), tree.node.spec)
        m.blocks.append(m.slot(own, at["block"]))
        return True
    if type(tree) is tuple or type(tree) is list:
        entries = m.items(entry, tree)
        return all(_match(m, e, part) for e, part in zip(entries, tree, strict=True))
    if type(tree) is dict and all(type(key) is str for key in tree):
        keys = sorted(tree)
        entries = m.values(entry, keys)
        return all(_match(m, e, tree[k]) for e, k in zip(entries, keys, strict=True))
    if isinstance(tree, TreeBranch):
        kind: Any = type(tree)
        m.kind(entry, kind)
        at = slot_offsets(kind)
        return all(_match(m, m.slot(entry, at[name]), getattr(tree, name))
                   for name in tree._fields)
    return False


def building_of(tree: Any) -> Building | None:
    """How to build a tree of results; None if it cannot be built. Tuples stand for the branches of
    which `has_branches` is true.

    Args:
        tree: The structure of the tree, as `flatten` returns it.
    """
    b = Building()
    return b if _build(b, tree, 0) >= 0 else None


def _build(b: Building, tree: Any, leaf: int) -> int:
    """Adds the steps that build a tree, with the number of its first leaf. Returns the number of
    the next leaf, or -1 if the tree cannot be built."""
    if tree == LEAF:
        b.leaf(leaf)
        return leaf + 1
    if tree is None or not (tree[0] in (tuple, list, dict) or issubclass(tree[0], TreeBranch)):
        return -1
    kind, keys, parts = tree
    kind = tuple if issubclass(kind, TreeBranch) else kind
    for part in parts:
        leaf = _build(b, part, leaf)
        if leaf < 0:
            return -1
    if kind is dict:
        b.table(keys)
    else:
        b.row(kind, keys)
    return leaf


def has_branches(tree: Any) -> bool:
    """Whether a tree has branches other than tuples, lists and dicts."""
    return isinstance(tree, tuple) and (
        issubclass(tree[0], TreeBranch) or any(map(has_branches, tree[2])))
