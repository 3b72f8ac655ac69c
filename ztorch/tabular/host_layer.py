"""Layers that run on the host, before a model: their learned state is data that artifacts keep."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ztorch import dispatch
from ztorch.config import Named
from ztorch.errors import ConfigError, DataError, Unsupported

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_NUMBERS = 1 << 31  # of an array that a layer returns
MODES = ("int", "one_hot", "multi_hot", "count", "tf_idf")


class HostLayer(Named, family="host layer", such_as="StringLookup"):
    """Base of layers that prepare data on the host. Call one on an array or a list; its config
    holds all that it learned. Each also takes Keras' `name`, and `dtype`, which has no effect."""

    name: str | None = None  # of the layer that it is within a model
    reads_text: ClassVar[bool] = False  # whether an Input of text may be read by it
    begins_models: ClassVar[bool] = False  # whether a Sequential may begin with it, not an Input

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            cls.__init__ = _with_shared_arguments(cls.__init__)  # type: ignore[method-assign]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        if isinstance(config.get("vocabulary"), str):
            raise ConfigError(f"the vocabulary of {cls.__name__} is a path, and a description "
                              "reads no other file; pass the words themselves")
        return super().from_config(config)

    def __call__(self, inputs: Any, **more: Any) -> np.ndarray:
        """Prepares data.

        Args:
            inputs: An array, or nested lists. Some layers also take numbers that a model computes
                with, such as an Input, and become a part of it.
            **more: Further arguments of the layer.

        Returns:
            An array.
        """
        in_model = dispatch.encode(self, inputs, more)
        if in_model is not None:
            return in_model
        return self.call(_array(inputs, type(self).__name__), **more)

    @abstractmethod
    def call(self, inputs: np.ndarray) -> np.ndarray:
        """Prepares an array."""

    def row_of(self, texts: tuple[int, ...]) -> tuple[tuple[int | None, ...], str | None]:
        """Shape and dtype of its result for a row of texts of this shape. An axis that is as long
        as the longest text is None; so is the dtype of numbers that are not integers."""
        example = self.of_rows(np.full((1, *texts), self.any_text(), object))
        return (tuple(n or None for n in example.shape[1:]),
                "int32" if example.dtype.kind in "iu" else None)

    def any_text(self) -> str:
        """A text that it takes."""
        return ""

    def of_rows(self, texts: np.ndarray) -> np.ndarray:
        """The result for an array of rows, each of which may be a single text."""
        rows = self.call(texts if texts.ndim > 1 else texts[:, None])
        return rows[:, 0] if texts.ndim == 1 and rows.shape[1:] == (1,) else rows

    def need_no_sparse(self, sparse: bool) -> None:
        """Raises where sparse outputs are asked for."""
        if sparse:
            raise Unsupported(f"{type(self).__name__}(sparse=True): there are no sparse arrays; "
                              "leave it out")

    def need_mode(self, mode: Any, modes: Sequence[str]) -> str:
        """An output mode, or an error that lists those of the layer."""
        if mode not in modes:
            raise ConfigError(f"{type(self).__name__}(output_mode={mode!r}) must be one of "
                              f"{', '.join(map(repr, modes))}")
        return str(mode)


def _with_shared_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """`init` of a layer, which then takes `name` and `dtype` too."""

    @functools.wraps(init)
    def shared(self: Any, *args: Any, name: str | None = None, dtype: Any = None,
               **keywords: Any) -> None:
        init(self, *args, **keywords)
        if name is not None:
            self.name = name

    return shared


def as_category_counts(numbers: np.ndarray, mode: str, depth: int,
                       weights: np.ndarray | None = None) -> np.ndarray:
    """Numbers of categories in an output mode other than "int".

    The last axis holds the categories of one example, except in "one_hot", where each number is an
    example of its own. Negative numbers count for nothing.

    >>> as_category_counts(np.array([[0, 2, 2]]), "count", 3).tolist()
    [[1.0, 0.0, 2.0]]
    """
    if mode == "one_hot" and (numbers.ndim == 0 or numbers.shape[-1] != 1):
        numbers = numbers[..., None]
    elif numbers.ndim == 0:
        numbers = numbers[None]
    flat = numbers.reshape(-1, numbers.shape[-1]) if numbers.size else numbers.reshape(
        int(np.prod(numbers.shape[:-1])), numbers.shape[-1])
    need_memory(len(flat), depth)
    out = np.zeros((len(flat), depth), np.float32)
    rows, places = np.nonzero(flat >= 0)
    added = 1.0 if weights is None else np.broadcast_to(weights, numbers.shape).reshape(
        flat.shape)[rows, places]
    np.add.at(out, (rows, flat[rows, places]), added)
    if mode in ("one_hot", "multi_hot"):
        out = (out > 0).astype(np.float32)
    return out.reshape(*numbers.shape[:-1], depth)


def need_memory(rows: int, columns: int) -> None:
    """Raises where an array would be too large to make at once."""
    if rows * columns > MOST_NUMBERS:
        raise DataError(f"{rows:,} rows of {columns:,} numbers are too many at once; pass fewer "
                        "rows, or take fewer categories")


def batches(data: Any) -> Iterator[np.ndarray]:
    """The batches of data that `adapt` gets: an array or list is one batch."""
    if hasattr(data, "__array__") or isinstance(data, (list, tuple, str)):
        yield _array(data, "adapt")
    elif hasattr(data, "__iter__"):
        for batch in data:
            yield _array(batch[0] if isinstance(batch, tuple) else batch, "adapt")
    else:
        raise DataError(f"adapt takes an array, a list or batches of them, not a "
                        f"{type(data).__name__}")


def _array(data: Any, label: str) -> np.ndarray:
    plain = isinstance(data, (list, tuple, str, bytes, int, float))
    try:
        if plain or hasattr(data, "__array__"):
            return np.asarray(data)
    except (ValueError, TypeError):
        if plain:
            raise DataError(f"{label}: rows have different lengths; pass texts, or rows of one "
                            "length") from None
    raise Unsupported(f"{label} runs on the host, before a model: call it on an array or a list, "
                      f"not on a {type(data).__name__}, and pass its result to the model")


def as_texts(array: np.ndarray) -> np.ndarray:
    """An array of objects that are all str."""
    texts = np.empty(array.shape, object)
    flat = [x.decode("utf-8", "replace") if isinstance(x, bytes) else "" if x is None else str(x)
            for x in array.reshape(-1).tolist()]
    texts.reshape(-1)[:] = flat
    return texts
