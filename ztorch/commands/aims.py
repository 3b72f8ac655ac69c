"""Losses and metrics named on the command line, by output where there are several."""

from __future__ import annotations

from typing import Any

from ztorch.commands.named import Ports
from ztorch.errors import ConfigError, unknown


def per_output(option: str, text: str, ports: Ports) -> list[str] | dict[str, list[str]]:
    """What an option names: words with commas, or by outputs where there are several.

    >>> per_output("--loss", "mse", Ports({"": (3,)}, {"": (1,)}))
    ['mse']
    >>> per_output("--metrics", "a=mae, b=mse,b=mae", Ports({"": (3,)}, {"a": (1,), "b": (1,)}))
    {'a': ['mae'], 'b': ['mse', 'mae']}
    """
    words = [word.strip() for word in text.split(",")]
    pairs = [word.rpartition("=") for word in words]
    if not all(word for _, _, word in pairs):
        raise ConfigError(f"{option} {text!r} has an empty name")
    if not any(equals for _, equals, _ in pairs):
        return words
    if "" in ports.outputs:
        raise ConfigError(f"{option} {text!r} names an output, and the model has one that needs no "
                          f"name: {option} {','.join(word for _, _, word in pairs)}")
    found: dict[str, list[str]] = {}
    for output, equals, word in pairs:
        if not equals:
            raise ConfigError(f"{option} {text!r} does not say which output {word!r} is for; write "
                              f"{next(iter(ports.outputs))}={word}")
        if output.strip() not in ports.outputs:
            raise ConfigError(f"{option}: {unknown('output', output.strip(), ports.outputs)}")
        found.setdefault(output.strip(), []).append(word.strip())
    return found


def loss(text: str | None, ports: Ports) -> Any:
    """What compile takes for --loss."""
    if text is None:
        return None
    found = per_output("--loss", text, ports)
    if isinstance(found, list):
        if len(found) > 1:
            fix = (f"name their outputs: --loss {_example(ports, found)}" if "" not in ports.outputs
                   else "the model has one output, which takes one")
            raise ConfigError(f"--loss {text!r} names {len(found)} losses; {fix}")
        return found[0]
    if double := [output for output, words in found.items() if len(words) > 1]:
        raise ConfigError(f"--loss {text!r} gives output {double[0]!r} {len(found[double[0]])} "
                          "losses; it takes one")
    return {output: words[0] for output, words in found.items()}


def metrics(text: str | None, ports: Ports) -> Any:
    """What compile takes for --metrics."""
    found = per_output("--metrics", text, ports) if text is not None else ()
    if isinstance(found, list) and "" not in ports.outputs:
        raise ConfigError(f"--metrics {text!r} does not say which output it is for; write "
                          f"--metrics {_example(ports, found)}")
    return found


def _example(ports: Ports, words: list[str]) -> str:
    return ",".join(f"{output}={words[min(k, len(words) - 1)]}"
                    for k, output in enumerate(ports.outputs))
