"""The data that users pass to a program, as arrays that the program takes, or an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztorch.dtypes import DType, dtype, i32
from ztorch.errors import DataError, Unsupported
from ztorch.feed.columns import as_array, check_weights, one_per_row, pad, reads_in_place, store
from ztorch.feed.frames import columns_of, is_frame
from ztorch.feed.parts import of_outputs, parts_by_name
from ztorch.feed.ports import InputPort, TargetPort
from ztorch.feed.sequences import Ragged, Sequences
from ztorch.feed.sources import need_no_mapping
from ztorch.feed.texts import TextReader
from ztorch.runtime.buckets import Buckets, parse_open_axes

if TYPE_CHECKING:
    from ztorch.runtime.loaded_program import BoundCall
    from ztorch.runtime.snapshot import Metadata
    from ztorch.runtime.spec import FunctionSpec
    from ztorch.tabular.record import PipelineRecord

# Rows by port (x, y/NAME, lengths/AXIS ...), all with the same number of rows.
Columns = dict[str, np.ndarray | Ragged]


def rows_of(columns: Columns) -> int:
    """Number of rows."""
    return len(next(iter(columns.values())))


class DataAdapter(NamedTuple):
    """Turns users' x, y and sample_weight into the arrays that one program takes."""

    buckets: Buckets
    input_ports: tuple[InputPort, ...]
    target_ports: tuple[TargetPort, ...] = ()  # of the outputs that have a loss
    weight_ports: tuple[TargetPort, ...] = ()  # of outputs that have separate weights
    stateful: str = ""  # a layer that remembers a state for each row of a batch, if there is one
    outputs: tuple[str, ...] = ()  # the names of all outputs, in their order
    open_axes: Sequence[str] = ()  # axes whose size varies, without that of the batch
    dtypes: Mapping[str, DType] = MappingProxyType({})  # of each column, by port
    pipeline: PipelineRecord | None = None  # how tables become the only input

    @classmethod
    def of(cls, functions: Mapping[str, FunctionSpec], metadata: Metadata,
           buckets: Buckets, stateful: str = "") -> DataAdapter:
        """The adapter of a program with these functions, metadata and buckets."""
        input_ports = []
        for port, x in functions["predict"].inputs.items():
            if port[0] != "x":
                continue
            axes, ids = metadata.open_axes.get(port, ""), metadata.input_range.get(port[2:])
            input_ports.append(InputPort(
                port, tuple(x.shape[1:]), dtype(x.dtype),
                None if ids is None else (ids.low, ids.high, f"layer {ids.layer!r}"),
                {axis: open_axis.name for axis, open_axis in parse_open_axes(axes).items()},
                TextReader.of(metadata.texts.get(port[2:]))))
        target_ports = []
        scoring = [functions[name] for name in ("evaluate", "train") if name in functions]
        for port, y in {k: y for f in scoring for k, y in f.inputs.items()}.items():
            if port[0] == "y":
                loss = metadata.loss.get(port[2:])
                target_ports.append(TargetPort(
                    port, tuple(y.shape[1:]), dtype(y.dtype), metadata.classes.get(port[2:]),
                    loss.name if loss else "", bool(metadata.probabilities.get(port[2:])),
                    parse_open_axes(metadata.open_axes.get(port, ""))))
        weight_ports = {port: TargetPort(port, tuple(w.shape[1:]), dtype(w.dtype))
                        for f in scoring for port, w in f.inputs.items()
                        if port.partition("/")[0] == "weights"}
        ports: list[InputPort | TargetPort] = [*input_ports, *target_ports, *weight_ports.values()]
        open_axes = list(buckets.axes)[1:]
        return cls(buckets, tuple(input_ports), tuple(target_ports), tuple(weight_ports.values()),
                   stateful, tuple(port.partition("/")[2] for port in functions["predict"].outputs),
                   open_axes, {**{p.port: p.dtype for p in ports},
                               **{f"lengths/{axis}": i32 for axis in open_axes}},
                   metadata.pipeline)

    def lengths(self, columns: Columns) -> dict[str, np.ndarray]:
        """The sizes of rows along each open axis."""
        return {axis: np.asarray(columns[f"lengths/{axis}"]) for axis in self.open_axes}

    def sizes(self, columns: Columns) -> tuple[int, ...]:
        """The sizes of the bucket that holds all these rows in one batch."""
        if not self.open_axes:
            return (rows_of(columns),)
        lengths = self.lengths(columns)
        self.buckets.check_batchable(lengths)
        return (rows_of(columns), *[int(n.max()) for n in lengths.values()])

    def fits_one_bucket(self, columns: Columns) -> bool:
        """Whether rows may be in one batch: of one size along axes that are never padded."""
        return self.buckets.can_be_batched(self.lengths(columns))

    @property
    def several_inputs(self) -> bool:
        """Whether there are several inputs; they have names then."""
        return len(self.input_ports) > 1

    def need_whole_batches(self, rows: int, batch_size: int) -> None:
        """Raises where a batch would not be full and a layer remembers a state for each row."""
        if self.stateful and rows % batch_size:
            raise DataError(f"layer {self.stateful!r} is stateful: it remembers states for batches "
                            f"of {batch_size} rows, and x has {rows}; pass a multiple of "
                            f"{batch_size} rows, or compile with another batch_size")

    # -- inputs -----------------------------------------------------------------------------------

    @property
    def _tables(self) -> Any:
        from ztorch.tabular import rows  # only now: few programs read tables

        return rows

    def reads_table(self, value: Any) -> bool:
        """Whether x is a table that the program's pipeline reads."""
        return self.pipeline is not None and self._tables.is_table(self.pipeline, value)

    def with_targets(self, x: Any, y: Any) -> tuple[Any, Any]:
        """x and y; where x is a table, its targets as numbers."""
        if self.pipeline is None or not self.reads_table(x):
            return x, y
        return x, self._tables.targets_of(self.pipeline, x, y)

    def inputs(self, value: Any, suffix: str = "", grows: bool = False) -> Columns:
        """x as arrays of rows of the inputs' shapes. Errors call it x, followed by `suffix`. With
        `grows`, rows may be longer than the program takes."""
        first = self.input_ports[0]
        if self.reads_table(value):
            value = self._tables.inputs_of(self.pipeline, value)
        if not self.several_inputs:
            if isinstance(value, tuple):
                raise DataError(f"x{suffix} is a tuple of {len(value)}; pass its parts one by one, "
                                "such as fit(*data)")
            if type(value) is not np.ndarray:
                need_no_mapping(value, f"x{suffix}")
            return self._with_lengths({first.port: first.rows(value, f"x{suffix}")}, suffix, grows)
        if is_frame(value):
            columns_by_name = columns_of(value)
            value = {p.name: columns_by_name[p.name] for p in self.input_ports
                     if p.name in columns_by_name}
        parts = parts_by_name("x", value, [p.name for p in self.input_ports], "inputs", suffix)
        columns: Columns = {}
        for p in self.input_ports:
            rows = columns[p.port] = p.rows(parts[p.name], f"x[{p.name!r}]{suffix}")
            if len(rows) != (count := len(columns[first.port])):
                raise DataError(f"x[{first.name!r}]{suffix} has {count} rows but x[{p.name!r}] has "
                                f"{len(rows)}; each row needs all inputs")
        return self._with_lengths(columns, suffix, grows)

    def _with_lengths(self, columns: Columns, suffix: str, grows: bool) -> Columns:
        """The columns, and for each open axis the sizes of rows along it."""
        for p in self.input_ports:
            rows = columns[p.port]
            if isinstance(rows, Ragged):
                label = f"x[{p.name!r}]{suffix}" if self.several_inputs else f"x{suffix}"
                for axis, name in p.axes.items():
                    sizes = rows.sizes[axis]
                    for size in sorted({*sizes.tolist()}):
                        self.buckets.need_size(name, size, label, grows)
                    self._need_same_lengths(columns.setdefault(
                        f"lengths/{name}", sizes.astype(np.int32)), sizes, label, name)
        for name in self.open_axes:  # those that are compiled for size 1 alone have no column yet
            columns.setdefault(f"lengths/{name}", np.ones(rows_of(columns), np.int32))
        return columns

    @staticmethod
    def _need_same_lengths(lengths: np.ndarray | Ragged, sizes: np.ndarray, label: str,
                           axis: str, other: str = "another input") -> None:
        for k in np.flatnonzero(lengths != sizes)[:1]:
            raise DataError(f"row {k} of {label} has {sizes[k]} steps along axis {axis!r}, "
                            f"and {lengths[int(k)]} in {other}; they must be as many")

    # -- targets ----------------------------------------------------------------------------------

    def targets(self, value: Any, inputs: Columns, suffix: str = "",
                first_row: int = 0) -> Columns:
        """y as arrays of rows of the targets' shapes, for these inputs; every label is checked.
        Errors call it y, followed by `suffix`, and count rows from `first_row`."""
        columns = self._targets(value, rows_of(inputs), suffix, first_row)
        for p in self.target_ports:
            rows = columns[p.port]
            if isinstance(rows, Ragged):
                label = f"y[{p.name!r}]{suffix}" if p.name else f"y{suffix}"
                for axis, open_axis in p.axes.items():
                    self._need_same_lengths(open_axis.size(inputs[f"lengths/{open_axis.name}"]),
                                            rows.sizes[axis], label, open_axis.name,
                                            "the output" if open_axis.steps else "another input")
        return columns

    def _targets(self, value: Any, rows: int, suffix: str, first_row: int) -> Columns:
        ports = self.target_ports
        if not ports:  # a custom step needs none
            return {}
        value = of_outputs(value, rows, {p.name: len(p.shape) for p in ports}, self.outputs)
        if len(ports) == 1 and not (ports[0].name and isinstance(value, Mapping)):
            return {ports[0].port: ports[0].rows(value, rows, f"y{suffix}", first_row)}
        if value is None:
            raise DataError(f"y{suffix} is missing: losses compare predictions with targets; pass "
                            "an array for each output that has a loss")
        parts = parts_by_name("y", value, [p.name for p in ports], "outputs with a loss",
                              suffix)
        return {p.port: p.rows(parts[p.name], rows, f"y[{p.name!r}]{suffix}", first_row)
                for p in ports}

    # -- weights of rows --------------------------------------------------------------------------

    def weights(self, sample_weight: Any, class_weight: Mapping[int, float] | None,
                columns: Columns, rows: int) -> np.ndarray | None:
        """One float32 weight per row; None where all weigh the same, and where outputs have weights
        of their own, which are columns: `weights_of_outputs`."""
        if self.weight_ports:
            sample_weight = None
        if sample_weight is None and class_weight is None:
            return None
        weights: np.ndarray | None = None
        if sample_weight is not None:
            if isinstance(sample_weight, Mapping):
                raise Unsupported("this program takes one weight per row, the same for all "
                                  "outputs; one that compile returned takes weights of outputs and "
                                  "steps beside arrays while its model is held in a variable")
            array = as_array(sample_weight, "sample_weight")
            fitted = one_per_row(array)
            if fitted is None or len(fitted) != rows:
                more = ("; a program whose model is held in a variable takes weights of steps, and "
                        "a train_step takes more than two arrays within x, as ((a, b, c),)"
                        if array.ndim > 1 and len(array) == rows else "")
                raise DataError(f"sample_weight has shape {array.shape}; it takes one weight "
                                f"per row: ({rows},){more}")
            weights = check_weights(fitted.astype(np.float32), "sample_weight")
        if class_weight is not None:
            if len(self.target_ports) > 1:
                raise Unsupported("class_weight is for models with one output; weigh rows with "
                                  "sample_weight")
            from ztorch.feed.row_weights import class_weights

            by_class = class_weights(class_weight, self.target_ports[0],
                                     columns[self.target_ports[0].port])
            weights = by_class if weights is None else weights * by_class
        return weights

    def weights_of_outputs(self, sample_weight: Any, rows: int) -> Columns:
        """The weights of outputs that have some of their own, as columns."""
        if not self.weight_ports:
            return {}
        from ztorch.feed.row_weights import output_weights

        return {**output_weights(self.weight_ports, [p.name for p in self.target_ports],
                                 sample_weight, rows)}

    # -- one batch --------------------------------------------------------------------------------

    def stage(self, call: BoundCall, columns: Columns,
              row_weights: np.ndarray | None = None) -> float:
        """Lets a call read at most a batch of rows: in place, or from its own padded buffers.
        Returns the number of rows that its scores count."""
        staging, dtypes, rows = call.inputs, self.dtypes, 0
        call.release()
        for name, array in columns.items():
            rows = len(array)
            if name not in staging:  # no loss depends on it
                continue
            if isinstance(array, Sequences):
                array = array.joined(staging[name].shape[1])
            if isinstance(array, Ragged):
                array = array.padded(np.arange(rows), staging[name].shape[1:])
            elif reads_in_place(call, name, array, dtypes[name]):
                continue
            store(staging[name][:rows], dtypes[name], array)
        if "real" in staging:
            staging["real"][:rows] = 1
        weights = staging.get("w")
        if weights is None:  # to predict, rows of older data after these do no harm
            return float(rows)
        weights[:rows] = 1.0 if row_weights is None else row_weights
        if rows < len(weights):
            pad(staging, rows)
        return float(rows if "real" in staging or row_weights is None else row_weights.sum())
