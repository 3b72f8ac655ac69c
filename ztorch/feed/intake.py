"""What users hand to a program, brought to what the program takes, or refused with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztorch.config import number
from ztorch.dtypes import DType, dtype
from ztorch.errors import ConfigError, DataError, Unsupported, unknown
from ztorch.feed.columns import (
    Input,
    Target,
    as_array,
    check_weights,
    one_a_row,
    pad,
    store,
)

if TYPE_CHECKING:
    from ztorch.runtime.snapshot import Metadata
    from ztorch.runtime.spec import FunctionSpec

Columns = dict[str, np.ndarray]  # arrays by the names of a function's inputs, all of as many rows


def rows_of(columns: Columns) -> int:
    """How many rows there are."""
    return len(next(iter(columns.values())))


def is_stream(x: Any, y: Any) -> bool:
    """Whether x brings batches rather than rows: an iterator, a loader, or a list of tuples."""
    if hasattr(x, "__array__") or hasattr(x, "__dlpack__") or isinstance(
            x, (str, bytes, tuple, Mapping)):
        return False
    if isinstance(x, list):
        return y is None and bool(x) and all(isinstance(item, tuple) for item in x)
    return hasattr(x, "__iter__")


def batch_agrees(given: int | None, compiled: int) -> None:
    """A batch size may be repeated after compile, not changed."""
    if given is None or given == compiled:
        return
    if not isinstance(given, (int, np.integer)) or given < 1:
        raise ConfigError(f"batch_size={given!r} must be a whole number, one or more")
    raise ConfigError(f"batch_size={given}, but this program is compiled for {compiled} rows at a "
                      f"time; leave batch_size out, or compile with batch_size={given}")


class Intake(NamedTuple):
    """What one program takes: its inputs, and the targets of its losses."""

    takes: tuple[Input, ...]
    aims: tuple[Target, ...] = ()

    @classmethod
    def of(cls, functions: Mapping[str, FunctionSpec], metadata: Metadata) -> Intake:
        """What a program takes, by its functions and what is known about its model."""
        scored = functions.get("train") or functions.get("evaluate")
        takes = []
        for port, x in functions["predict"].inputs.items():
            limits = metadata.input_range.get(port[2:])
            takes.append(Input(port, tuple(x.shape[1:]), dtype(x.dtype), None if limits is None else
                               (limits.low, limits.high, f"layer {limits.layer!r}")))
        aims = []
        for port, y in (scored.inputs.items() if scored else ()):
            if port[0] == "y":
                loss = metadata.loss.get(port[2:])
                aims.append(Target(port, tuple(y.shape[1:]), dtype(y.dtype),
                                   metadata.classes.get(port[2:]), loss.name if loss else "",
                                   bool(metadata.probabilities.get(port[2:]))))
        return cls(tuple(takes), tuple(aims))

    @property
    def dtypes(self) -> dict[str, DType]:
        """By the names of a function's inputs."""
        return {**{one.port: one.dtype for one in self.takes},
                **{one.port: one.dtype for one in self.aims}}

    @property
    def several(self) -> bool:
        """Whether there are several inputs, which have names then."""
        return len(self.takes) > 1

    # -- inputs -----------------------------------------------------------------------------------

    def inputs(self, value: Any, where: str = "") -> Columns:
        """x as arrays of rows of the inputs' shapes; `where` ends its name in errors."""
        if not self.several:
            one = self.takes[0]
            if isinstance(value, tuple):
                raise DataError(f"x{where} is a tuple of {len(value)}; pass its parts one by one, "
                                "such as fit(*data)")
            if isinstance(value, Mapping):
                raise DataError(f"x{where} is a mapping; the model has one input: pass its array")
            return {one.port: one.rows(value, f"x{where}")}
        parts = _parts("x", value, [one.name for one in self.takes], "inputs", where)
        columns: Columns = {}
        for one in self.takes:
            rows = columns[one.port] = one.rows(parts[one.name], f"x[{one.name!r}]{where}")
            first = columns[self.takes[0].port]
            if len(rows) != len(first):
                raise DataError(f"x[{self.takes[0].name!r}]{where} has {len(first)} rows but "
                                f"x[{one.name!r}] has {len(rows)}; each row needs all inputs")
        return columns

    # -- targets ----------------------------------------------------------------------------------

    def targets(self, value: Any, rows: int, where: str = "", first_row: int = 0) -> Columns:
        """y as arrays of rows of the targets' shapes, every label checked."""
        if len(self.aims) == 1 and not (self.aims[0].name and isinstance(value, Mapping)):
            one = self.aims[0]
            return {one.port: one.rows(value, rows, f"y{where}", first_row)}
        if value is None:
            raise DataError(f"y{where} is missing: losses compare predictions with targets; pass "
                            "an array for each output that has a loss")
        parts = _parts("y", value, [one.name for one in self.aims], "outputs with a loss", where)
        return {one.port: one.rows(parts[one.name], rows, f"y[{one.name!r}]{where}", first_row)
                for one in self.aims}

    # -- weights of rows --------------------------------------------------------------------------

    def weights(self, sample_weight: Any, class_weight: Mapping[int, float] | None,
                columns: Columns, rows: int) -> np.ndarray | None:
        """One float32 weight a row; None where all weigh the same."""
        if sample_weight is None and class_weight is None:
            return None
        found: np.ndarray | None = None
        if sample_weight is not None:
            if isinstance(sample_weight, Mapping):
                raise Unsupported("sample_weight takes one weight a row, the same for all outputs; "
                                  "weigh outputs with compile(loss_weights=...)")
            array = as_array(sample_weight, "sample_weight")
            fitted = one_a_row(array)
            if fitted is None or len(fitted) != rows:
                raise DataError(f"sample_weight has shape {array.shape}; it takes one weight a "
                                f"row: ({rows},)")
            found = check_weights(fitted.astype(np.float32), "sample_weight")
        if class_weight is not None:
            if len(self.aims) > 1:
                raise Unsupported("class_weight is for models with one output; weigh rows with "
                                  "sample_weight")
            by_class = self._class_weights(class_weight, columns[self.aims[0].port])
            found = by_class if found is None else found * by_class
        return found

    def _class_weights(self, class_weight: Mapping[int, float], y: np.ndarray) -> np.ndarray:
        if not isinstance(class_weight, Mapping):
            raise DataError("class_weight takes a dict from class number to weight, such as "
                            "{0: 1.0, 1: 5.0}")
        classes = self.aims[0].classes
        labels = y.argmax(-1) if classes is None and y.ndim > 1 and y.shape[-1] > 1 else y
        labels = labels.reshape(len(labels), -1)
        if labels.shape[1] != 1:
            raise DataError("class_weight needs one label a row; weigh rows with sample_weight")
        whole = labels[:, 0].astype(np.int64)
        if (whole != labels[:, 0]).any() or np.min(whole) < 0:
            raise DataError("class_weight needs labels that are class numbers; weigh rows of "
                            "a regression with sample_weight")
        count = classes or (y.shape[-1] if y.ndim > 1 and y.shape[-1] > 1 else
                                 max(2, int(np.max(whole)) + 1))
        table = np.ones(count, np.float32)
        for label, weight in class_weight.items():
            if not isinstance(label, (int, np.integer)) or not 0 <= label < count:
                raise DataError(f"class_weight names class {label!r}; classes are 0..{count - 1}")
            table[label] = number(f"class_weight[{label}]", weight, least=0)
        return check_weights(table, "class_weight")[whole]

    # -- one batch --------------------------------------------------------------------------------

    def stage(self, staging: Mapping[str, np.ndarray], columns: Columns,
              w: np.ndarray | None = None) -> float:
        """Puts at most a batch of rows into the staging buffers; gives the sum of their weights."""
        dtypes, rows = self.dtypes, 0
        for name, array in columns.items():
            rows = len(array)
            if name in staging:  # an input that leads to no loss is not there
                store(staging[name][:rows], dtypes[name], array)
        weights = staging["w"]
        weights[:rows] = 1.0 if w is None else w
        if rows < len(weights):
            pad(staging, rows)
        return float(rows if w is None else w.sum(dtype=np.float64))


def _parts(what: str, value: Any, names: list[str], are: str, where: str) -> dict[str, Any]:
    """What was given for several inputs or targets, by their names."""
    wanted = (f"the model has {len(names)} {are} ({', '.join(names)}): pass a list of arrays in "
              "this order, or a dict by these names")
    if isinstance(value, Mapping):
        if missing := [name for name in names if name not in value]:
            raise DataError(f"{what}{where} lacks {missing[0]!r}; {wanted}")
        if extra := [name for name in value if name not in names]:
            raise DataError(f"{what}{where}: {unknown(are.split()[0][:-1], extra[0], names)}")
        return dict(value)
    if not isinstance(value, (list, tuple)):
        raise DataError(f"{what}{where} is one {type(value).__name__}; {wanted}")
    if len(value) != len(names):
        raise DataError(f"{what}{where} has {len(value)} parts; {wanted}")
    return dict(zip(names, value, strict=True))
