"""The options of `ztorch train` for a table: the target column, and the kinds of other columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import click

KINDS = {"number": "numbers", "category": "categories", "date": "dates", "text": "texts of words",
         "ignore": "nothing to learn from"}


@dataclass(frozen=True)
class TableOptions:
    """The options of a table on the command line."""

    target: str | None = None  # the column to learn; x or y if there is a model
    kinds: dict[str, tuple[str, ...]] = field(default_factory=dict)  # columns by kind
    balance: bool = False  # whether all classes have the same weight


def table_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that adds the options to a command, which gets them as `table`."""

    @wraps(function)
    def run(*, target: str | None, balance: bool, **options: Any) -> Any:
        kinds = {kind: options.pop(kind) for kind in KINDS}
        return function(table=TableOptions(target, kinds, balance), **options)

    run = click.option("--balance", is_flag=True, help="Of a table, each class counts as much as "
                       "any other.")(run)
    for kind, contents in reversed(KINDS.items()):
        run = click.option(f"--{kind}", multiple=True, metavar="COLUMN", help="A column of the "
                           f"table that holds {contents}.")(run)
    return click.option("--target", metavar="NAME", help="The target: the column of a table; of "
                        "a model y, or x as an autoencoder does.")(run)
