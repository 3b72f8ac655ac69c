"""Einstein summation: products and sums, with one letter per axis."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Sequence
from functools import cache
from inspect import Parameter, Signature
from itertools import combinations
from operator import itemgetter
from typing import Any

import numpy as np

from ztorch.graph.op import OPS, op, shape_error
from ztorch.graph.value import Value

Sizes = dict[str, int]  # of axes, by their letters
Part = tuple[int, ...]  # some of the operands, by number

MOST_ORDERED = 8  # operands whose order is searched, among 3 ** 8 pairs of parts


class _Term:
    """A tensor with one letter per axis."""

    def __init__(self, x: Value, letters: str):
        self.x, self.letters = x, letters

    def diagonals(self) -> _Term:
        """Takes the diagonal of axes with the same letter."""
        x, letters = self.x, self.letters
        for letter in dict.fromkeys(letters):
            while letters.count(letter) > 1:
                first, second = (m.start() for m in list(re.finditer(letter, letters))[:2])
                x = OPS.diagonal(x, 0, first, second)
                letters = "".join(c for k, c in enumerate(letters) if k not in (first, second))
                letters += letter
        return _Term(x, letters)

    def summed(self, keep: str) -> _Term:
        """Sums over all letters except these."""
        axes = tuple(k for k, c in enumerate(self.letters) if c not in keep)
        x = OPS.sum(self.x, axis=axes) if axes else self.x
        return _Term(x, "".join(c for c in self.letters if c in keep))

    def arranged(self, letters: str) -> Value:
        """The tensor with its axes in this order."""
        return OPS.transpose(self.x, tuple(self.letters.index(c) for c in letters))

    def times(self, other: _Term, keep: str, sizes: Sizes) -> _Term:
        """The product, summed over the letters that both have and that are not kept."""
        common = [c for c in self.letters if c in other.letters]
        batch = "".join(c for c in common if c in keep)
        shared = "".join(c for c in common if c not in keep)
        left = "".join(c for c in self.letters if c not in common)
        right = "".join(c for c in other.letters if c not in common)
        if left and right and keep.index(left[0]) > keep.index(right[0]):
            return other.times(self, keep, sizes)  # in the result's order: no transposition

        def size(letters: str) -> int:
            return math.prod(sizes[c] for c in letters)

        a = OPS.reshape(self.arranged(batch + left + shared),
                        (*(sizes[c] for c in batch), size(left), size(shared)))
        b = OPS.reshape(other.arranged(batch + shared + right),
                        (*(sizes[c] for c in batch), size(shared), size(right)))
        y = OPS.matmul(a, b) if shared else a * b
        letters = batch + left + right
        return _Term(OPS.reshape(y, tuple(sizes[c] for c in letters)), letters)


def _numpy(*operands: Any, subscripts: str) -> Any:
    return np.einsum(subscripts, *operands)


def _einsum(*operands: Any, subscripts: str | None = None) -> Value:
    """A sum of products, written with one letter per axis.

    Axes of several operands with the same letter are paired; letters that are not in the result are
    summed over. Up to eight operands are multiplied in the order of fewest multiplications.

    Args:
        subscripts: Letters of each operand, separated by commas, then `->` and those of the result.
            Without `->`, the result has all letters that occur once, in alphabetical order. An
            ellipsis stands for axes without letters, which broadcast.
        *operands: Tensors of floats, of one dtype.

    Returns:
        A tensor of the axes that the result names.

    Raises:
        ShapeError: Letters and axes do not agree.

    Examples:
        >>> import ztorch as zt
        >>> zt.ops.einsum("ij,j->i", np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 10.0]))
        array([21., 43.])
    """
    if subscripts is None:
        subscripts, *rest = operands
        operands = tuple(rest)
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    terms, result, sizes = _parsed(str(subscripts), operands)
    terms = [term.diagonals() for term in terms]
    while len(terms) > MOST_ORDERED:
        terms = [_product(terms[:2], terms[2:], result, sizes), *terms[2:]]
    return _product(terms, [], result, sizes).arranged(result)


def _product(terms: Sequence[_Term], others: Sequence[_Term], result: str, sizes: Sizes) -> _Term:
    """The product of terms in the order of fewest multiplications, summed over the letters that
    neither the others nor the result have. Of equal orders it is the one from left to right."""
    after = result + "".join(t.letters for t in others)

    def kept(part: Part) -> str:
        """The letters of the product of these terms, in the order of the result."""
        own = {c for k in part for c in terms[k].letters}
        rest = after + "".join(t.letters for k, t in enumerate(terms) if k not in part)
        return "".join(c for c in dict.fromkeys(rest) if c in own)

    @cache
    def best(part: Part) -> tuple[int, Part, Part]:
        """Multiplications, and the two parts that are multiplied last."""
        if len(part) == 1:
            return 0, part, ()
        lefts = ((part[0], *more) for n in range(len(part) - 2, -1, -1)
                 for more in combinations(part[1:], n))
        pairs = ((left, tuple(k for k in part if k not in left)) for left in lefts)
        return min(((best(left)[0] + best(right)[0]
                     + math.prod(sizes[c] for c in {*kept(left), *kept(right)}), left, right)
                    for left, right in pairs), key=itemgetter(0))

    def multiplied(part: Part) -> _Term:
        _, left, right = best(part)
        if not right:
            return terms[part[0]].summed(kept(part))
        return multiplied(left).times(multiplied(right), kept(part), sizes)

    return multiplied(tuple(range(len(terms))))


def _parsed(subscripts: str, operands: tuple[Value, ...]) -> tuple[list[_Term], str, Sizes]:
    """Operands with one letter per axis, the letters of the result, and sizes."""
    text = subscripts.replace(" ", "")
    if not re.fullmatch(r"[A-Za-z.,]*(->[A-Za-z.]*)?", text) or "." in text.replace("...", ""):
        raise shape_error(f"ops.einsum cannot parse {subscripts!r}", fix="write letters of each "
                          "operand, commas, -> and letters of the result, such as 'ij,jk->ik'")
    left, arrow, result = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(operands):
        raise shape_error(f"ops.einsum got {len(operands)} operands, but its subscripts "
                          f"{subscripts!r} are for {len(parts)}",
                          fix="pass one tensor for each part between commas")
    spare = "".join(c for c in reversed(string.ascii_letters) if c not in text)
    most = max(x.rank - len(p.replace("...", "")) for p, x in zip(parts, operands, strict=True))
    dots = spare[:max(most, 0)] if "..." in left else ""
    sizes: Sizes = {}
    terms = []
    for part, x in zip(parts, operands, strict=True):
        named = len(part.replace("...", ""))
        letters = part.replace("...", dots[len(dots) - (x.rank - named):] if x.rank > named else "")
        if len(letters) != x.rank:
            raise shape_error(f"ops.einsum({subscripts!r}): {part!r} does not fit the axes of",
                              x.shape)
        for letter, n in zip(letters, x.shape, strict=True):
            if letter in dots and 1 in (n, sizes.get(letter, 1)):
                sizes[letter] = max(n, sizes.get(letter, 1))
            elif sizes.setdefault(letter, n) != n:
                raise shape_error(f"ops.einsum({subscripts!r}): axis {letter} has sizes "
                                  f"{sizes[letter]} and {n} in", *(v.shape for v in operands))
        terms.append(_Term(x, letters))
    terms = [_Term(OPS.broadcast_to(t.x, tuple(sizes[c] for c in t.letters)), t.letters)
             for t in terms]
    if not arrow:
        once = sorted(c for c in set(left) - set(".,") if left.count(c) == 1)
        result = ("..." if dots else "") + "".join(once)
    result = result.replace("...", dots)
    if missing := [c for c in result if c not in sizes]:
        raise shape_error(f"ops.einsum({subscripts!r}): no operand has {', '.join(missing)}")
    if len(set(result)) < len(result):
        raise shape_error(f"ops.einsum({subscripts!r}) names an axis of the result twice")
    return terms, result, sizes


# The subscripts may come first, as in NumPy, or by name.
_einsum.__signature__ = Signature([  # type: ignore[attr-defined]
    Parameter("subscripts", Parameter.POSITIONAL_OR_KEYWORD, annotation="str"),
    Parameter("operands", Parameter.VAR_POSITIONAL, annotation="Value")], return_annotation="Value")
op(name="einsum", numpy=_numpy)(_einsum)
