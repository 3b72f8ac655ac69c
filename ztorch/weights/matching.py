"""Matches the modules of a file with the parts of a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from ztorch.errors import WeightsError, nearest
from ztorch.initializers import Shape
from ztorch.weights.modules import FileModule, ModelPart


class Mismatch(WeightsError):
    """The file is sound, but holds the weights of another model."""


Pairs = list[tuple[ModelPart | None, FileModule | None]]  # None: one side lacks it
_MOST_ROWS = 12  # of the table in an error


def renamed(name: str, names: Mapping[str, str]) -> str:
    """The name in the file, for a name of ours. `names` maps our names, or the beginnings of them,
    to those in the file.

    >>> renamed("encoder.norm1", {"encoder": "blocks.0"})
    'blocks.0.norm1'
    """
    for ours, theirs in names.items():
        ours = ours.replace("/", ".")
        if name == ours or name.startswith(f"{ours}."):
            return f"{theirs}{name[len(ours):]}"
    return name


def check_names(parts: Sequence[ModelPart], names: Mapping[str, str]) -> None:
    """Raises WeightsError for a name in `names` that no part of the model has."""
    known = [part.names[0] for part in parts]
    for ours in names:
        dotted = ours.replace("/", ".")
        if not any(k == dotted or k.startswith(f"{dotted}.") for k in known):
            raise WeightsError(f"names={{{ours!r}: ...}}: the model has no layer with weights of "
                               f"that name{nearest(dotted, known) or '.'} It has "
                               f"{', '.join(known)}")


def match(parts: Sequence[ModelPart], modules: Sequence[FileModule], *, ordered: bool,
          by_order: bool, names: Mapping[str, str], source: str,
          skip_mismatch: bool = False) -> list[tuple[ModelPart, FileModule]]:
    """Pairs each part with its module: by names where the file has all of them, else by order.

    Args:
        parts: Those of the model.
        modules: Those of the file.
        ordered: Whether modules are in the order of the model that they were written from. If not,
            only modules of equal shapes whose names differ in numbers alone are matched by order.
        by_order: Whether they may be matched by order.
        names: Maps our names to those in the file; these parts are matched by it alone.
        source: The file, for errors.
        skip_mismatch: Whether to skip tensors that do not fit, rather than reject the file.
    """
    check_names(parts, names)
    by_name = {m.names[0]: m for m in modules}
    fixed: Pairs = [(p, by_name.get(renamed(p.names[0], names))) for p in parts
                    if renamed(p.names[0], names) != p.names[0]]
    matched = {id(x) for pair in fixed for x in pair}
    rest = [p for p in parts if id(p) not in matched]
    free = [m for m in modules if id(m) not in matched]
    candidates: list[Pairs] = []
    for k in range(min([len(x.names) for x in rest] + [len(x.names) for x in free], default=0)):
        known = {m.names[k]: m for m in free}
        if len(known) == len(free) and all(p.names[k] in known for p in rest):
            ours = {p.names[k] for p in rest}
            candidates.append([*((p, known[p.names[k]]) for p in rest),
                               *((None, m) for m in free if m.names[k] not in ours)])
    if by_order:
        candidates.append(list(zip_longest(rest, free)) if ordered else
                          _by_shapes(rest, free, source))
    if not candidates:
        known = {m.names[0]: m for m in free}
        ours = {p.names[0] for p in rest}
        candidates.append([*((p, known.get(p.names[0])) for p in rest),
                           *((None, m) for m in free if m.names[0] not in ours)])
    fitting = []
    for candidate in candidates:
        fits = [(p, m) for p, m in (*fixed, *candidate) if p and m and p.fits(m)]
        if len(fits) == len(fixed) + len(candidate):
            return fits
        fitting.append(fits)
    if skip_mismatch:
        return max(fitting, key=len)
    raise Mismatch(f"{source} does not fit the model; mismatches:\n"
                   f"{table([*fixed, *candidates[0]])}\n"
                   "Change the model's layers, or say which is which: load_weights(path, "
                   "names={'layer': 'theirs'})")


def _by_shapes(parts: Sequence[ModelPart], modules: Sequence[FileModule], source: str) -> Pairs:
    """Pairs parts and modules of equal shapes in order, for a file that sorts its names."""
    def signature(x: ModelPart | FileModule) -> tuple[tuple[str, Shape], ...]:
        return tuple(sorted(x.shapes.items()))

    pairs: Pairs = []
    for kind in dict.fromkeys([*map(signature, parts), *map(signature, modules)]):
        ours = [p for p in parts if signature(p) == kind]
        theirs = sorted((m for m in modules if signature(m) == kind), key=lambda m: natural(
            m.names[0]))
        patterns = {re.sub(r"\d+", "#", m.names[0]) for m in theirs}
        if len(patterns) > 1 and len(ours) == len(theirs):
            raise WeightsError(
                f"{source} sorts its tensors by name, and {', '.join(m.names[0] for m in theirs)} "
                f"have the same shapes as {', '.join(p.names[0] for p in ours)}, so nothing "
                "says which is which; give names={'layer': 'theirs'}, name the layers alike, or "
                "use a file of torch.save, which keeps the order")
        pairs += zip_longest(ours, theirs)
    return pairs


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts 2 before 10.

    >>> sorted(["10.weight", "2.weight"], key=natural)
    ['2.weight', '10.weight']
    """
    return [(int(piece), "") if piece.isdecimal() else (-1, piece)
            for piece in re.split(r"(\d+)", name)]


def table(pairs: Pairs) -> str:
    """The pairs that differ, theirs beside ours."""
    rows = [("theirs", "ours")]
    for part, module in pairs:
        if part is None or module is None or not part.fits(module):
            rows.append((_shown(module), _shown(part)))
    left_out = len(rows) - 1 - _MOST_ROWS
    rows = rows[:_MOST_ROWS + 1]
    width = max(len(theirs) for theirs, _ in rows)
    lines = [f"  {theirs:{width}} | {ours}" for theirs, ours in rows]
    return "\n".join([*lines, *([f"  and {left_out} more"] if left_out > 0 else [])])


def _shown(x: ModelPart | FileModule | None) -> str:
    if x is None:
        return "-"
    return f"{x.names[0]}: " + ", ".join(f"{s} {shape}" for s, shape in x.shapes.items())
