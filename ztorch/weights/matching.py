"""Matches the modules of a file to the parts of a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from ztorch.errors import WeightsError, nearest
from ztorch.initializers import Shape
from ztorch.weights.modules import FileModule, ModelPart


class Mismatch(WeightsError):
    """A file is valid, but has the weights of another model."""


Pairs = list[tuple[ModelPart | None, FileModule | None]]  # None: there is no counterpart
_MOST_ROWS = 12  # in the table of an error message


def renamed(name: str, names: Mapping[str, str]) -> str:
    """The name in the file for one of our names. `names` maps our names, or prefixes of them, to
    those in the file.

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
    part_names = [part.names[0] for part in parts]
    for ours in names:
        dotted = ours.replace("/", ".")
        if not any(k == dotted or k.startswith(f"{dotted}.") for k in part_names):
            raise WeightsError(f"names={{{ours!r}: ...}}: the model has no layer with weights of "
                               f"that name{nearest(dotted, part_names) or '.'} It has "
                               f"{', '.join(part_names)}")


def match(parts: Sequence[ModelPart], modules: Sequence[FileModule], *, ordered: bool,
          by_order: bool, names: Mapping[str, str], source: str,
          skip_mismatch: bool = False) -> list[tuple[ModelPart, FileModule]]:
    """Pairs each part with its module: by name if the file has all names, else by order.

    Args:
        parts: The parts of the model.
        modules: The modules of the file.
        ordered: Whether modules are in the order of the model that wrote them. If not, only modules
            of the same shapes whose names differ only in numbers are matched by order.
        by_order: Whether modules may be matched by order.
        names: Our names to names in the file; parts that it names are matched only by it.
        source: The file, for error messages.
        skip_mismatch: Whether to skip tensors that do not fit, rather than reject the file.
    """
    check_names(parts, names)
    by_name = {m.names[0]: m for m in modules}
    fixed: Pairs = [(p, by_name.get(renamed(p.names[0], names))) for p in parts
                    if renamed(p.names[0], names) != p.names[0]]
    matched = {id(x) for pair in fixed for x in pair}
    unmatched = [p for p in parts if id(p) not in matched]
    free = [m for m in modules if id(m) not in matched]
    candidates = _by_names(unmatched, free)
    if by_order:
        candidates.append(list(zip_longest(unmatched, free)) if ordered else
                          _by_shapes(unmatched, free, source))
    if not candidates:
        candidates.append(_paired(unmatched, free, 0))
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
                   "Change the model's layers, or map their names: load_weights(path, "
                   "names={'layer': 'theirs'})")


def _by_names(parts: Sequence[ModelPart], modules: Sequence[FileModule]) -> list[Pairs]:
    """The pairs by each kind of name, if the file has the names of all parts."""
    kinds = min([len(x.names) for x in parts] + [len(x.names) for x in modules], default=0)
    candidates = []
    for k in range(kinds):
        theirs = {m.names[k] for m in modules}
        if len(theirs) == len(modules) and all(p.names[k] in theirs for p in parts):
            candidates.append(_paired(parts, modules, k))
    return candidates


def _paired(parts: Sequence[ModelPart], modules: Sequence[FileModule], k: int) -> Pairs:
    """Pairs parts and modules with the same k-th name; the others have no counterpart."""
    theirs = {m.names[k]: m for m in modules}
    ours = {p.names[k] for p in parts}
    return [*((p, theirs.get(p.names[k])) for p in parts),
            *((None, m) for m in modules if m.names[k] not in ours)]


def _by_shapes(parts: Sequence[ModelPart], modules: Sequence[FileModule], source: str) -> Pairs:
    """Pairs parts and modules of the same shapes in order, for a file with sorted names."""
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
                f"have the same shapes as {', '.join(p.names[0] for p in ours)}, so they "
                "cannot be matched; pass names={'layer': 'theirs'}, rename the layers, or "
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
    """A table of the pairs that differ, theirs beside ours."""
    rows = [("theirs", "ours")]
    for part, module in pairs:
        if part is None or module is None or not part.fits(module):
            rows.append((_row(module), _row(part)))
    omitted = len(rows) - 1 - _MOST_ROWS
    rows = rows[:_MOST_ROWS + 1]
    width = max(len(theirs) for theirs, _ in rows)
    lines = [f"  {theirs:{width}} | {ours}" for theirs, ours in rows]
    return "\n".join([*lines, *([f"  and {omitted} more"] if omitted > 0 else [])])


def _row(x: ModelPart | FileModule | None) -> str:
    if x is None:
        return "-"
    return f"{x.names[0]}: " + ", ".join(f"{s} {shape}" for s, shape in x.shapes.items())
