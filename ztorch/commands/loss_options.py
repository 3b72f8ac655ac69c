"""The options --loss and --metrics: names, by output where a model has several."""

from __future__ import annotations

from typing import Any

from ztorch.commands.named_arrays import PortShapes
from ztorch.errors import ConfigError, unknown


def names_by_output(option: str, text: str, shapes: PortShapes) -> list[str] | dict[str, list[str]]:
    """The names in an option: a list, or a dict by output if the option names outputs.

    >>> names_by_output("--loss", "mse", PortShapes({"": (3,)}, {"": (1,)}))
    ['mse']
    >>> two = PortShapes({"": (3,)}, {"a": (1,), "b": (1,)})
    >>> names_by_output("--metrics", "a=mae, b=mse,b=mae", two)
    {'a': ['mae'], 'b': ['mse', 'mae']}
    """
    items = [item.strip() for item in text.split(",")]
    pairs = [item.rpartition("=") for item in items]
    if not all(name for _, _, name in pairs):
        raise ConfigError(f"{option} {text!r} has an empty name")
    if not any(equals for _, equals, _ in pairs):
        return items
    if "" in shapes.outputs:
        raise ConfigError(f"{option} {text!r} names an output, and the model has one that needs no "
                          f"name: {option} {','.join(name for _, _, name in pairs)}")
    by_output: dict[str, list[str]] = {}
    for output, equals, name in pairs:
        if not equals:
            raise ConfigError(f"{option} {text!r} does not say which output {name!r} is for; write "
                              f"{next(iter(shapes.outputs))}={name}")
        if output.strip() not in shapes.outputs:
            raise ConfigError(f"{option}: {unknown('output', output.strip(), shapes.outputs)}")
        by_output.setdefault(output.strip(), []).append(name.strip())
    return by_output


def loss(text: str | None, shapes: PortShapes) -> Any:
    """The loss for `compile`, from --loss."""
    if text is None:
        return None
    names = names_by_output("--loss", text, shapes)
    if isinstance(names, list):
        if len(names) > 1:
            fix = (f"name their outputs: --loss {_example(shapes, names)}"
                   if "" not in shapes.outputs else "the model has one output, which takes one")
            raise ConfigError(f"--loss {text!r} names {len(names)} losses; {fix}")
        return names[0]
    if outputs := [output for output, losses in names.items() if len(losses) > 1]:
        raise ConfigError(f"--loss {text!r} gives output {outputs[0]!r} "
                          f"{len(names[outputs[0]])} losses; it takes one")
    return {output: losses[0] for output, losses in names.items()}


def metrics(text: str | None, shapes: PortShapes) -> Any:
    """The metrics for `compile`, from --metrics."""
    names = names_by_output("--metrics", text, shapes) if text is not None else ()
    if isinstance(names, list) and "" not in shapes.outputs:
        raise ConfigError(f"--metrics {text!r} does not say which output it is for; write "
                          f"--metrics {_example(shapes, names)}")
    return names


def _example(shapes: PortShapes, names: list[str]) -> str:
    return ",".join(f"{output}={names[min(k, len(names) - 1)]}"
                    for k, output in enumerate(shapes.outputs))
