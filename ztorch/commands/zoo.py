"""ztorch zoo: the models that come with ztorch."""

from __future__ import annotations

from typing import Any

import click

from ztorch.commands import options
from ztorch.commands.group import examples
from ztorch.terminal.text_table import aligned_table


@click.command("zoo")
@options.as_json
@examples("ztorch zoo")
def list_zoo(as_json: bool) -> None:
    """List the models that come with ztorch.

    Each with its parameters, the shape of its inputs, the data that it trains on, and the scores
    that training reaches on test data.
    """
    import json

    from ztorch.sources.find import zoo

    rows = [_row(name) for name in zoo()]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    print(aligned_table([("model", "parameters", "input", "data", "reaches", "comes trained"), *(
        (row["name"], f"{row['parameters']:,}", _shapes(row["input_shape"]), row["data"] or "-",
         ", ".join(f"{score} {value:g}" for score, value in row["bar"].items()) or "-",
         "yes" if row["trained"] else "")
        for row in rows)]))
    print("Those with a small variant, as NAME:small: "
          + ", ".join(row["name"] for row in rows if row["small"]))


def _row(name: str) -> dict[str, Any]:
    from ztorch.sources.find import find

    recipe = find(name)
    model = recipe.model
    shapes = {name: x.row_shape for name, x in model.inputs_by_name.items()}
    return {"name": name, "parameters": model.count_params(), "input_shape": shapes.get("", shapes),
            "data": recipe.data, "bar": recipe.bar or {}, "small": recipe.small is not None,
            "trained": recipe.shipped is not None}


def _shapes(shapes: Any) -> str:
    """A shape, or those of several inputs by name.

    >>> _shapes((8, 8, 1)), _shapes({"a": (3,), "b": (2,)})
    ('8 x 8 x 1', 'a 3, b 2')
    """
    if isinstance(shapes, dict):
        return ", ".join(f"{name} {_shapes(shape)}" for name, shape in shapes.items())
    return " x ".join(map(str, shapes))
