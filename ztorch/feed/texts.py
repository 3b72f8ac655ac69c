"""Inputs of text: rows of texts from users, and the numbers that a model takes for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztorch.errors import ArtifactError, ConfigError, DataError
from ztorch.feed.columns import fitted_rows, need_rows, spell
from ztorch.feed.sources import is_stream

if TYPE_CHECKING:
    from ztorch.tabular.host_layer import HostLayer
    from ztorch.tabular.record import TextRecord


class TextReader(NamedTuple):
    """Reads an input of text."""

    layer: HostLayer
    shape: tuple[int, ...]  # of the texts of a row

    @classmethod
    def of(cls, record: TextRecord | None) -> TextReader | None:
        """The reader that an artifact describes; None for an input of numbers."""
        if record is None:
            return None
        from ztorch.tabular.encoders import encoder_of  # few programs take text

        try:
            return cls(encoder_of(record), record.shape)
        except ConfigError as error:
            raise ArtifactError(f"an input of text cannot be read: {error}; use another file, or "
                                "save the model again") from None

    def numbers(self, value: Any, name: str) -> np.ndarray:
        """The model's input for a user's texts. Errors call them `name`.

        >>> from ztorch.tabular.lookups import StringLookup
        >>> TextReader(StringLookup(vocabulary=["a", "b"]), (1,)).numbers(["b", "?"], "x").tolist()
        [[2], [0]]
        """
        return self.layer.of_rows(texts(value, self.shape, name))


def texts(value: Any, row: tuple[int, ...], name: str) -> np.ndarray:
    """The user's data, as an array of rows of texts of this shape.

    >>> texts([b"a", "b"], (1,), "x").tolist()
    [['a'], ['b']]
    """
    if isinstance(value, (str, bytes)):
        raise DataError(f"{name} is a single text; pass a list of texts, such as [{name}]")
    try:
        array = np.asarray(value, object)
    except (ValueError, TypeError) as error:
        raise DataError(f"{name} cannot be read as texts: {error}") from None
    rows = fitted_rows(array, row)
    if rows is None:
        raise DataError(f"{name} has shape {array.shape}, but the model takes texts of "
                        f"{spell(row)}")
    need_rows(rows, name)
    flat = [x.decode("utf-8", "replace") if isinstance(x, bytes) else x
            for x in rows.reshape(-1).tolist()]
    for k, x in enumerate(flat):
        if not isinstance(x, str):
            raise DataError(f"{name} holds {x!r} in row {k * len(rows) // len(flat)}, which is not "
                            "text; convert it, and fill gaps with ''")
    read = np.empty(rows.shape, object)
    read.reshape(-1)[:] = flat
    return read


def with_numbers(x: Any, readers: Mapping[str, TextReader]) -> Any:
    """The user's x, with numbers in place of the texts of some inputs. A stream of
    batches stays as it is.

    Args:
        x: The argument of `fit` or `predict`.
        readers: The text readers, by the names of the inputs with text.
    """
    if not readers or is_stream(x, None):
        return x
    if "" in readers:
        return readers[""].numbers(x, "x")
    if isinstance(x, Mapping):
        return {name: readers[name].numbers(part, f"x[{name!r}]") if name in readers else part
                for name, part in x.items()}
    return x
