"""Tables of the supported imports and exports, for docs/onnx.md.

`python -m ztorch.interchange.onnx.tables` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ztorch.interchange.onnx import nodes, writers
from ztorch.interchange.onnx.node import NODES, NOTES
from ztorch.interchange.onnx.selection import CALLS, LAYERS, PRIMITIVES

__all__ = ["exported", "imported"]
assert nodes and writers  # imported because they fill the registries


def imported() -> str:
    """A table of ONNX's ops, with their family and their unsupported features.

    >>> "| `Conv` | convolution | |" in imported()
    True
    """
    lines = ["| op | family | supported |", "| --- | --- | --- |"]
    for op, importer in sorted(NODES.items()):
        family = importer.__module__.rpartition(".")[2]
        lines.append(f"| `{op}` | {family} | {NOTES[op]} |".replace("|  |", "| |"))
    return "\n".join(lines)


def exported() -> str:
    """A table of our layers and ops, with the ops of ONNX that they are written as.

    >>> "| `conv` | Conv |" in exported()
    True
    """
    return "\n".join(["| of ztorch | in the file |", "| --- | --- |", *_rows()])


def _rows() -> Iterator[str]:
    for kind, rule in sorted(LAYERS.items(), key=lambda item: item[0].__name__):
        yield f"| layer `{kind.__name__}` | {rule.onnx} |"
    for name, rule in sorted(CALLS.items()):
        yield f"| `{name}` | {rule.onnx} |"
    rest = ", ".join(f"`{name}`" for name in sorted(set(PRIMITIVES) - set(CALLS)))
    yield f"| {rest} | one node, or a few |"


if __name__ == "__main__":
    print(imported(), exported(), sep="\n\n")
