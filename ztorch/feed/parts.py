"""Arrays for several inputs or outputs: a list in their order, or a dict by names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ztorch.errors import DataError, unknown


def parts_by_name(role: str, value: Any, names: Sequence[str], kind: str,
                  suffix: str) -> dict[str, Any]:
    """The arrays for several inputs or targets, by name.

    Args:
        role: "x" or "y", for errors.
        value: A list in the order of `names`, or a mapping.
        names: The names of the inputs or outputs.
        kind: Their name in errors: "inputs" or "outputs with a loss".
        suffix: Follows `role` in errors.
    """
    fix = (f"the model has {len(names)} {kind} ({', '.join(names)}): pass a list of arrays in "
           "this order, or a dict by these names")
    if isinstance(value, Mapping):
        if missing := [name for name in names if name not in value]:
            raise DataError(f"{role}{suffix} lacks {missing[0]!r}; {fix}")
        if extra := [name for name in value if name not in names]:
            raise DataError(f"{role}{suffix}: {unknown(kind.split()[0][:-1], extra[0], names)}")
        return dict(value)
    if not isinstance(value, (list, tuple)):
        raise DataError(f"{role}{suffix} is one {type(value).__name__}; {fix}")
    if len(value) != len(names):
        raise DataError(f"{role}{suffix} has {len(value)} parts; {fix}")
    return dict(zip(names, value, strict=True))


def of_outputs(value: Any, rows: int, ranks: Mapping[str, int], outputs: Sequence[str]) -> Any:
    """Targets without those of outputs that have no loss, as Keras takes them: y=[a, None].

    Args:
        value: The user's argument.
        rows: The rows of x.
        ranks: Of a row of the outputs that have a loss.
        outputs: All outputs.
    """
    names = list(ranks)
    if isinstance(value, Mapping):
        return {name: y for name, y in value.items() if name in names or name not in outputs}
    if not isinstance(value, (list, tuple)) or not any(
            len(value) == len(listed) and all(
                _is_target(y, rows, len(value), ranks.get(name))
                for name, y in zip(listed, value, strict=True))
            for listed in (names, outputs)):
        return value
    listed = names if len(value) == len(names) else outputs
    chosen = [y for name, y in zip(listed, value, strict=True) if name in names]
    return chosen[0] if len(chosen) == 1 else chosen


def _is_target(y: Any, rows: int, count: int, rank: int | None) -> bool:
    """Whether an item of a list is all targets of an output, and not those of a row."""
    if y is None:
        return True
    if count == 1 and rank and getattr(y, "ndim", rank + 1) == rank:
        return False  # one row, as long as there are rows
    return hasattr(y, "__len__") and not isinstance(y, str) and len(y) == rows and (
        hasattr(y, "shape") or rows != count)
