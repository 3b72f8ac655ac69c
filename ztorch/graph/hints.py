"""Hints of users to the rules that schedule kernels. They travel with the nodes of a graph, in the
name of the layer that a node belongs to, so that all that becomes of a node keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from ztorch.errors import ConfigError
from ztorch.graph.value import Value, current_layer, layer_scope

_MARK = "@"  # begins the hints in the name of a layer


@dataclass(frozen=True)
class Hints:
    """How a kernel may be computed. Hints change speed, and results by rounding at most; a device
    that cannot follow one goes its own way, and `explain` says so.

    Args:
        workgroup: Threads of a workgroup, on a GPU. Default: `None`.
        vector_width: Elements that a thread computes at once. Default: `None`.
        unroll: Iterations of the innermost loop that are unrolled. Default: `None`.
        tile: Rows and columns that are computed together; of a matrix product on a GPU also the
            depth of a strip in shared memory. Default: `None`.
        stages: Strips in shared memory at once, to which asynchronous copies go. Default: `None`.
        tensor_cores: Whether instructions multiply matrices, where there are any. Default: `None`.
        shared_memory: The most bytes of shared memory of a workgroup, on a GPU, so that more of
            them run at once. Default: `None`.
        kind: The loop nest, by the name that `explain` shows, such as `"grid_product"`, where
            there are several for a kernel. Default: `None`.

    Examples:
        >>> str(Hints(workgroup=128, tile=(64, 32)))
        'workgroup=128 tile=64x32'
    """

    workgroup: int | None = None
    vector_width: int | None = None
    unroll: int | None = None
    tile: tuple[int, ...] | None = None
    stages: int | None = None
    tensor_cores: bool | None = None
    shared_memory: int | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        for name, x in self.given.items():
            numbers = x if name == "tile" and isinstance(x, tuple) else (x,)
            if name == "tile" and not (isinstance(x, tuple) and len(x) in (2, 3)):
                raise ConfigError(f"the hint tile={x!r} must be two or three numbers, such as "
                                  "(64, 32)")
            if name == "tensor_cores" and not isinstance(x, bool):
                raise ConfigError(f"the hint tensor_cores={x!r} must be True or False")
            if name == "kind" and not (isinstance(x, str) and x.isidentifier()):
                raise ConfigError(f"the hint kind={x!r} must be the name of a loop nest, such as "
                                  "'rows'")
            if name not in ("tensor_cores", "kind") and not all(
                    type(n) is int and n > 0 for n in numbers):
                raise ConfigError(f"the hint {name}={x!r} must be "
                                  f"{'integers' if name == 'tile' else 'an integer'} above 0")

    @property
    def given(self) -> dict[str, Any]:
        """The hints that are set, by name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: x for name, x in values.items() if x is not None}

    def __str__(self) -> str:
        return " ".join(f"{name}={'x'.join(map(str, x)) if isinstance(x, tuple) else x}"
                        for name, x in self.given.items())

    def scope(self, name: str) -> layer_scope:
        """Nodes that are made inside have these hints.

        Args:
            name: Of the layer, if there is none around it.
        """
        return layer_scope(f"{layer_name(current_layer()) or name}{_MARK}{self}")


def layer_name(layer: str) -> str:
    """The name of a layer without hints."""
    return layer.partition(_MARK)[0]


def hints_of(nodes: Iterable[Value]) -> Hints | None:
    """The first hints among those of some nodes.

    >>> from ztorch.graph.op import leaf
    >>> with Hints(tile=(4, 8), tensor_cores=False).scope("k"):
    ...     x = leaf("input", "x", (2,), "float32")
    >>> hints_of([x])
    Hints(workgroup=None, vector_width=None, unroll=None, tile=(4, 8), stages=None, \
tensor_cores=False, shared_memory=None, kind=None)
    """
    for v in nodes:
        _, mark, text = v.layer.partition(_MARK)
        if mark:
            return _parsed(text)
    return None


def _parsed(text: str) -> Hints:
    values: dict[str, Any] = {}
    for part in text.split():
        name, _, x = part.partition("=")
        values[name] = (x if name == "kind" else x == "True" if name == "tensor_cores" else
                        tuple(map(int, x.split("x"))) if name == "tile" else int(x))
    return Hints(**values)
