"""Rows or batches whose columns have names: which are x, and which are y."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ztorch.errors import DataError
from ztorch.feed.adapter import DataAdapter

# Names of columns of targets in datasets whose items are dicts.
_TARGETS = ("label", "labels", "target", "targets", "y")


def parts_of_columns(adapter: DataAdapter, item: Mapping[str, Any], with_targets: bool,
                     owner: str) -> tuple[Any, ...]:
    """x, or x and y, of a row or batch whose columns have names.

    Args:
        adapter: Knows the inputs and targets of the program.
        item: The columns by name. All inputs and nothing else are x themselves.
        with_targets: Whether there must be y; False to predict.
        owner: The owner of the columns, with a verb, for errors.
    """
    inputs = [p.name for p in adapter.input_ports]
    if not with_targets and set(item) == {*inputs}:
        return (item,)
    outputs = [p.name for p in adapter.target_ports]
    targets = [n for n in outputs if n in item] or [n for n in _TARGETS if n in item][:1]
    if not adapter.several_inputs:
        inputs = [name for name in item if name not in targets]
    missing = [name for name in inputs if name not in item]
    if missing or (len(inputs) != 1 and not adapter.several_inputs) or (
            with_targets and not targets):
        raise DataError(f"{owner} the columns {', '.join(map(str, item))}, and it is not clear "
                        "which are x and y; pass columns as arrays, such as fit(dataset['image'], "
                        "dataset['label']), or items (x, y)")
    x = {n: item[n] for n in inputs} if adapter.several_inputs else item[inputs[0]]
    y = {n: item[n] for n in targets} if len(targets) > 1 else [item[n] for n in targets]
    return (x, y if isinstance(y, dict) else y[0]) if with_targets else (x,)
