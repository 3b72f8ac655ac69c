"""The signature of a kernel: types of arguments and results, as in `"f32[b, n] -> f32[b]"`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ztorch.dtypes import DType, dtype
from ztorch.errors import KernelError, UnknownName

_PART = re.compile(r"\s*(?:([A-Za-z_]\w*)\s*)?(\[[^\]]*\])?\s*(,|$)")
_EXAMPLE = "'f32[b, n], f32[n] -> f32[b, n]'"


@dataclass(frozen=True)
class ArrayType:
    """The dtype and the sizes of one array."""

    dtype: DType | None  # None: any dtype
    dims: tuple[int | str, ...] | None  # names of sizes, or sizes; None: any shape
    text: str  # the text of this type


@dataclass(frozen=True)
class Signature:
    """The types of the arguments and of the results, in order."""

    arguments: tuple[ArrayType, ...]
    results: tuple[ArrayType, ...]  # empty if results are not checked

    def sizes(self, name: str, arguments: Mapping[str, Any]) -> dict[str, int]:
        """The sizes of the names.

        Args:
            name: Name of the kernel, for errors.
            arguments: Values by the name of the parameter, in order. Only tensors are checked.

        Raises:
            KernelError: An argument has another dtype, or a size that does not agree.
        """
        if len(arguments) < len(self.arguments):
            raise KernelError(f"kernel {name}: the signature has {len(self.arguments)} arguments, "
                              f"the function {len(arguments)}")
        known: dict[str, tuple[int, str]] = {}
        for (label, x), kind in zip(arguments.items(), self.arguments, strict=False):
            if hasattr(x, "shape"):
                self._check(f"kernel {name}: {label}", x, kind, known, f"{label}, {kind.text}")
        return {n: size for n, (size, _) in known.items()}

    def check_results(self, name: str, results: Sequence[Any], sizes: Mapping[str, int]) -> None:
        """Raises a KernelError if the results differ from the signature."""
        if not self.results:
            return
        if len(results) != len(self.results):
            raise KernelError(f"kernel {name} returns {len(results)} arrays, but its signature "
                              f"says {len(self.results)}")
        known = {n: (size, "the arguments") for n, size in sizes.items()}
        for k, (y, kind) in enumerate(zip(results, self.results, strict=True)):
            self._check(f"kernel {name}: result {k}", y, kind, known, kind.text)

    @staticmethod
    def _check(label: str, x: Any, kind: ArrayType, known: dict[str, tuple[int, str]],
               origin: str) -> None:
        shape = list(x.shape)
        if kind.dtype is not None and x.dtype is not kind.dtype:
            raise KernelError(f"{label} is {x.dtype}{shape}, but the signature says {kind.text}; "
                              f"convert it with astype({str(kind.dtype)!r})")
        if kind.dims is None:
            return
        if len(kind.dims) != len(shape):
            raise KernelError(f"{label} has {len(shape)} axes, {shape}, but the signature says "
                              f"{kind.text}")
        for axis, (dim, n) in enumerate(zip(kind.dims, shape, strict=True)):
            size, place = known.setdefault(dim, (n, origin)) if isinstance(dim, str) else (dim, "")
            if size != n:
                why = f"{dim} is {size} in {place}" if isinstance(dim, str) else f"it must be {dim}"
                raise KernelError(f"{label} has shape {shape}: axis {axis} is {n}, but {why}")


def parse_signature(text: str) -> Signature:
    """Parses a signature.

    Raises:
        KernelError: The text is not a signature.

    >>> parse_signature("f32[b, n], f32 -> f32[b, n]").arguments[0].dims
    ('b', 'n')
    """
    if not isinstance(text, str):
        raise KernelError(f"zt.kernel takes a function or a signature, not {text!r}; write a "
                          f"signature like {_EXAMPLE}")
    left, arrow, right = text.partition("->")
    results = _types(right, text)
    if arrow and not results:
        raise KernelError(f"the signature {text!r} has no results; write it like {_EXAMPLE}")
    return Signature(_types(left, text), results)


def _types(part: str, text: str) -> tuple[ArrayType, ...]:
    kinds = []
    position = 0
    part = part.strip()
    while position < len(part):
        match = _PART.match(part, position)
        if match is None or match.end() == position or not (match[1] or match[2]):
            raise KernelError(f"the signature {text!r} cannot be read at {part[position:]!r}; "
                              f"write it like {_EXAMPLE}")
        kinds.append(_type(match[1], match[2], text))
        position = match.end()
    return tuple(kinds)


def _type(name: str | None, dims: str | None, text: str) -> ArrayType:
    try:
        d = None if name in (None, "any") else dtype(str(name))
    except UnknownName as error:
        raise KernelError(f"the signature {text!r}: {error}") from None
    if dims is None:
        return ArrayType(d, () if name != "any" else None, name or "")
    sizes: list[int | str] = []
    for size in filter(None, (w.strip() for w in dims[1:-1].split(","))):
        if not size.isdecimal() and not size.isidentifier():
            raise KernelError(f"the signature {text!r}: {size!r} is neither a size nor a name")
        sizes.append(int(size) if size.isdecimal() else size)
    return ArrayType(d, tuple(sizes), f"{name or ''}{dims}")
