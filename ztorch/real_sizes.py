"""The real size of a variable axis: how layers change the size of an input.

A window with strides, padding or repetition changes the size n of an axis to `(n * times + plus)
// over`, and never below 0. A sequence of layers is a sequence of such steps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Step = tuple[int, int, int]  # times, plus, over


def real_size(n: Any, steps: Sequence[Step]) -> Any:
    """Applies steps to a size, or to an array of sizes.

    >>> int(real_size(9, [(1, -2, 2), (2, 0, 1)]))
    6
    """
    for times, plus, over in steps:
        n = np.maximum((np.asarray(n, np.int64) * times + plus) // over, 0)
    return n


def followed(steps: Sequence[Step], step: Step) -> tuple[Step, ...]:
    """The steps followed by one more, which is merged with the last one if possible.

    >>> followed([(1, 2, 1)], (1, -1, 2)), followed([(1, 0, 2)], (2, 0, 1))
    (((1, 1, 2),), ((1, 0, 2), (2, 0, 1)))
    >>> followed([(1, 2, 1)], (1, -2, 1))
    ()
    """
    joined = step
    if steps:
        (a, b, d), (times, plus, over) = steps[-1], step
        if d != 1 and times != 1:
            return (*steps, step)
        joined = (a * times, b * times + plus * d, d * over)
    before = steps[:-1]
    return tuple(before) if joined == (1, 0, 1) else (*before, joined)


class OpenAxis(NamedTuple):
    """An axis of a tensor with a variable size."""

    name: str  # name of the axis in the inputs
    steps: tuple[Step, ...] = ()  # from the size in the inputs to the size in this tensor

    def size(self, n: Any) -> Any:
        """The size here for size n in the inputs; n may be an array of sizes."""
        return real_size(n, self.steps)

    @property
    def formula(self) -> str:
        """The size here as a formula of the size in the inputs, for messages.

        >>> OpenAxis("time", ((1, -2, 2), (3, 0, 1))).formula
        '(time - 2) // 2 * 3'
        """
        text, is_sum = self.name, False
        for times, plus, over in self.steps:
            if times != 1:
                text, is_sum = f"({text}) * {times}" if is_sum else f"{text} * {times}", False
            if plus:
                text, is_sum = f"{text} {'+' if plus > 0 else '-'} {abs(plus)}", True
            if over != 1:
                text, is_sum = f"({text}) // {over}" if is_sum else f"{text} // {over}", False
        return text

    def __str__(self) -> str:
        """
        >>> str(OpenAxis("time")), str(OpenAxis("time", ((1, -2, 2),)))
        ('time', 'time@1-2/2')
        """
        return self.name + "".join(f"@{a}{b:+d}/{d}" for a, b, d in self.steps)

    @classmethod
    def of(cls, text: str) -> OpenAxis:
        """Parses the text of an axis.

        Raises:
            ValueError: The text does not describe an axis.

        Examples:
            >>> OpenAxis.of("time@1-2/2")
            OpenAxis(name='time', steps=((1, -2, 2),))
        """
        name, *texts = text.split("@")
        steps = [re.fullmatch(r"([1-9]\d{0,8})([+-]\d{1,9})/([1-9]\d{0,8})", t) for t in texts]
        if not name or None in steps:
            raise ValueError(f"{text!r} does not describe an axis and the steps of its size")
        return cls(name, tuple((int(m[1]), int(m[2]), int(m[3])) for m in steps if m))


MULTIPLE_MAX = 256  # largest multiple of an axis' sizes: eight halvings


def multiple(a: OpenAxis, b: OpenAxis) -> int | None:
    """The smallest number m so that two sizes are equal for all multiples of m; None if there is no
    small one.

    >>> multiple(OpenAxis("time"), OpenAxis("time", ((1, 0, 4), (4, 0, 1))))
    4
    >>> multiple(OpenAxis("time"), OpenAxis("time"))
    1
    >>> multiple(OpenAxis("time", ((1, 0, 2),)), OpenAxis("time", ((1, -1, 2),)))
    """
    for of in range(1, MULTIPLE_MAX + 1):
        sizes = of * np.arange(1, MULTIPLE_MAX + 1)
        if np.array_equal(a.size(sizes), b.size(sizes)):
            return of
    return None
