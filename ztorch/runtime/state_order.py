"""The order of a state's numbers in params, if it is not row-major.

Products read their matrices in strips. A program that never changes a weight stores it only in that
order. Whoever reads or sets the weight sees the model's array.

    >>> order = StateOrder((3, 2, 4), (("pad", (0, 0, 0, 1)), ("reshape", (2, 3, 4)),
    ...                                ("transpose", (1, 0, 2))))
    >>> w = np.arange(22.0).reshape(2, 11)
    >>> order.arrange(w)[2, 1].tolist()  # a strip of a row, and the zero that fills it up
    [19.0, 20.0, 21.0, 0.0]
    >>> np.array_equal(order.read(order.arrange(w), w.shape), w)
    True
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ztorch.files.kinds import BadValue, ListOf, OneOf, Row, Whole
from ztorch.files.schema import Record, field

MAX_AXES = 16  # of a tensor
MAX_SIZE = 1 << 40  # of an axis
MAX_STEPS = 16  # between the two orders
SIZES = ListOf(Whole(0, MAX_SIZE), 2 * MAX_AXES, f"a list of at most {2 * MAX_AXES} numbers")

Step = tuple[str, tuple[int, ...]]
Shape = tuple[int, ...]


class StateOrder(Record):
    """The steps that rearrange a state's array for params."""

    shape: tuple[int, ...] = field(  # shape of the array in params
        ListOf(Whole(1, MAX_SIZE), MAX_AXES, f"a shape of at most {MAX_AXES} axes"))
    steps: tuple[Step, ...] = field(  # each with the new shape, the order of axes, or the padding
        ListOf(Row(OneOf("reshape", "transpose", "pad"), SIZES, names="[step, numbers]"),
               MAX_STEPS, f"a list of at most {MAX_STEPS} steps"))

    def arrange(self, array: np.ndarray) -> np.ndarray:
        """Rearranges an array of the state's shape for params; maybe a view."""
        for step, numbers in self.steps:
            if step == "pad":
                array = np.pad(array, _pairs(numbers))
            else:
                array = getattr(array, step)(numbers)
        return array

    def read(self, array: np.ndarray, shape: Shape) -> np.ndarray:
        """Restores the state's array from the array in params; maybe a view."""
        for before, (step, numbers) in reversed([*zip(self._shapes(shape), self.steps,
                                                      strict=False)]):
            if step == "transpose":
                array = array.transpose(np.argsort(numbers))
            elif step == "reshape":
                array = array.reshape(before)
            else:
                array = array[tuple(slice(low, low + size) for (low, _), size
                                    in zip(_pairs(numbers), before, strict=True))]
        return array

    def check_from(self, shape: Shape) -> None:
        """Raises `BadValue` if the steps do not lead from a state's shape to the one in params."""
        *_, last = self._shapes(shape)
        if last != self.shape:
            raise BadValue(list(self.shape), f"{list(last)}, to which the steps lead", "shape")

    def _shapes(self, shape: Shape) -> Iterator[Shape]:
        """The shape before each step, and after the last."""
        yield shape
        for k, (step, numbers) in enumerate(self.steps):
            if step == "reshape" and math.prod(numbers) == math.prod(shape):
                shape = numbers
            elif step == "transpose" and sorted(numbers) == [*range(len(shape))]:
                shape = tuple(shape[axis] for axis in numbers)
            elif step == "pad" and len(numbers) == 2 * len(shape):
                shape = tuple(low + size + high for (low, high), size
                              in zip(_pairs(numbers), shape, strict=True))
            else:
                raise BadValue(list(numbers), f"numbers for a {step} of {list(shape)}",
                               "steps", k, 1)
            yield shape


def _pairs(numbers: tuple[int, ...]) -> list[tuple[int, int]]:
    """The number of zeros before and after the elements of each axis."""
    return [*zip(numbers[::2], numbers[1::2], strict=True)]
