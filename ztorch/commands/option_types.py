"""Types of arguments and options: validation and shell completion."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

MODEL_SUFFIXES = (".zt", ".py", ".keras", ".onnx", ".pt2", ".safetensors")  # of models
TABLE_SUFFIXES = (".csv", ".tsv")  # of tables, for which `ztorch train` chooses a model


def completions(incomplete: str, names: Iterable[str]) -> list[Any]:
    """The names that start with the typed text, or with its last part after a comma or `=`."""
    from click.shell_completion import CompletionItem

    start = max(incomplete.rfind(","), incomplete.rfind("=")) + 1
    before, part = incomplete[:start], incomplete[start:].lower()
    return [CompletionItem(before + name) for name in names if name.lower().startswith(part)]


class ModelName(click.ParamType):
    """An argument that names a model: shells complete names of the zoo, files and folders."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        from click.shell_completion import CompletionItem

        from ztorch.sources.find import zoo

        names = [CompletionItem(n) for n in zoo() if n.startswith(incomplete)]
        folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
        suffixes = MODEL_SUFFIXES + (TABLE_SUFFIXES if ctx.info_name == "train" else ())
        files = [str(p) for p in sorted(folder.glob("*"))
                 if p.suffix in suffixes and str(p).startswith(incomplete)]
        # Folders come first: the bash script drops everything before them.
        return [CompletionItem(incomplete, type="dir"), *names, *map(CompletionItem, files)]


class DeviceName(click.ParamType):
    """An option that names a device or a chip."""

    name = "device"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        from ztorch.runtime.devices import device_names

        return completions(incomplete, device_names())


class FamilyName(click.ParamType):
    """An option that names members of a family: losses, metrics or optimizers."""

    name = "name"

    def __init__(self, family: str):
        self.family = family

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        from ztorch.losses import Loss
        from ztorch.metrics import Metric
        from ztorch.optimizers import Optimizer

        classes: dict[str, Any] = {"loss": Loss, "metric": Metric, "optimizer": Optimizer}
        names = {member.names[0] if member.names else name
                 for name, member in classes[self.family].known.items()}
        accuracy = {"accuracy"} if self.family == "metric" else set()  # an alias of several metrics
        return completions(incomplete, sorted(names | accuracy))


class OneOfNames(click.ParamType):
    """An option whose values are checked later, and that shells complete to a few names."""

    name = "name"

    def __init__(self, *names: str):
        self.names = names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        return completions(incomplete, self.names)


class DataName(click.ParamType):
    """An option that names a data set or a file."""

    name = "data"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        from click.shell_completion import CompletionItem

        from ztorch.data import names

        return completions(incomplete, names()) or [CompletionItem(incomplete, type="file")]


class BatchSizes(click.ParamType):
    """An option that holds one size of batches, or several with commas."""

    name = "sizes"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        sizes = numbers(value)
        if not sizes:
            self.fail(f"{value!r}: pass one integer above zero, or several integers with commas, "
                      "such as 1,8,32", param, ctx)
        return sizes if len(sizes) > 1 else sizes[0]


class AxisSizes(click.ParamType):
    """An option that holds the name of an axis and its sizes."""

    name = "axis"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        axis, equals, sizes = value.rpartition("=")
        if not equals or not axis or not numbers(sizes):
            self.fail(f"{value!r} is not AXIS=N,N, such as time=64,128", param, ctx)
        return axis, numbers(sizes)


def numbers(text: str) -> tuple[int, ...]:
    """The positive integers in a text that separates them with commas; () for other texts.

    >>> numbers("8, 16"), numbers("8,0"), numbers("8,x"), numbers("²")
    ((8, 16), (), (), ())
    """
    parts = [part.strip() for part in text.split(",")]
    valid = all(part.isdecimal() and int(part) for part in parts)
    return tuple(map(int, parts)) if valid else ()
