"""Predictions of a model, with names."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from ztorch.data.json_lines import to_json_lines
from ztorch.tabular.record import TargetRecord

DIGITS = 6  # of probabilities and quantities in text


class Predictions:
    """The names and probabilities that a model predicts, or quantities: a row for each row of data.

    Args:
        target: The description of the target.
        outputs: The output of the model.

    Examples:
        >>> rows = Predictions(TargetRecord("fate", ("lost", "saved")),
        ...                    np.array([[0.9, 0.1], [0.3, 0.7]], np.float32))
        >>> rows.names, rows[1]
        (['lost', 'saved'], {'lost': 0.30000001192092896, 'saved': 0.699999988079071})
        >>> print(rows)
        fate,probability,lost,saved
        lost,0.9,0.9,0.1
        saved,0.7,0.3,0.7
    """

    def __init__(self, target: TargetRecord, outputs: np.ndarray):
        self.target, self.classes = target, target.classes
        self.probabilities: np.ndarray | None = None  # of shape (rows, classes)
        if self.classes:
            if outputs.shape[1:] == (1,):  # a single probability is that of the second class
                outputs = np.concatenate([1 - outputs, outputs], 1)
            self.probabilities = outputs
            self.values = outputs.argmax(1)  # numbers of the likeliest classes
        else:
            self.values = outputs.reshape(len(outputs)) if outputs[:1].size == 1 else outputs

    @property
    def names(self) -> list[str]:
        """The likeliest class of each row; of quantities, their texts."""
        if not self.classes:
            return [_text(value) for value in self.values]
        return [self.classes[k] for k in self.values]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> Any:
        """Of a row, the probability of each class by name, or the quantity."""
        if self.probabilities is None:
            return self.values[row].tolist()
        return dict(zip(self.classes, self.probabilities[row].tolist(), strict=True))

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def best(self, row: int) -> str:
        """The likeliest class of a row and its probability, or the quantity with its unit.

        >>> Predictions(TargetRecord("", ("cat", "dog")), np.array([[0.93, 0.07]])).best(0)
        'cat 93 %'
        """
        if self.probabilities is None:
            return f"{_text(self.values[row])} {self.target.unit}".rstrip()
        return f"{self.names[row]} {self.probabilities[row].max():.0%}".replace("%", " %")

    def to_csv(self, names_only: bool = False) -> str:
        """The predictions as the text of a CSV file with a header.

        Args:
            names_only: Whether to leave out the probabilities. Default: `False`.
        """
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        name = self.target.name or "prediction"
        if self.probabilities is None or names_only:
            writer.writerow([name])
            writer.writerows([text] for text in self.names)
            return out.getvalue()
        writer.writerow([name, "probability", *self.classes])
        for text, row in zip(self.names, self.probabilities, strict=True):
            writer.writerow([text, *map(_text, (row.max(), *row))])
        return out.getvalue()

    def to_json_lines(self, names_only: bool = False) -> str:
        """The predictions as JSON lines, with the names that `to_csv` has in its header.

        Args:
            names_only: Whether to leave out the probabilities. Default: `False`.

        >>> print(Predictions(TargetRecord("pet", ("cat", "dog")), np.array([[0.75, 0.25]]))
        ...       .to_json_lines(), end="")
        {"pet": "cat", "probability": 0.75, "cat": 0.75, "dog": 0.25}
        """
        columns = {self.target.name or "prediction": np.array(self.names) if self.classes else
                   self.values}
        if self.probabilities is not None and not names_only:
            columns["probability"] = self.probabilities.max(1)
            columns |= dict(zip(self.classes, self.probabilities.T, strict=True))
        return to_json_lines(columns)

    def __str__(self) -> str:
        return self.to_csv().rstrip()


def _text(value: Any) -> str:
    if np.ndim(value):
        return " ".join(map(_text, value))
    return f"{float(value):.{DIGITS}g}"
