"""A program with everything its next step depends on: the contents of artifacts and checkpoints."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ztorch.dtypes import DType
from ztorch.files.kinds import (
    DTYPE,
    FLAG,
    OBJECT,
    SCORE,
    TEXT,
    BadValue,
    Kind,
    ListOf,
    MapOf,
    OneOf,
    OneOrNamed,
    OrNone,
    Real,
    Whole,
)
from ztorch.files.schema import Record, field
from ztorch.runtime.spec import COUNT, MAX_BYTES, SHAPE, SIZE, ProgramSpec
from ztorch.tabular.record import PipelineRecord, TextRecord

SEED = Whole(0, (1 << 64) - 1)
EPOCHS = Whole(0, MAX_BYTES)
ID = Whole(-MAX_BYTES, MAX_BYTES)  # a number that stands for a word or class
LOSS_WEIGHT = Real(-1e300, 1e300, "a number")


# -- a program's knowledge of its model -----------------------------------------------------------


class NamedConfig(Record):
    """A loss, a metric or an optimizer, as `get` of its family takes it."""

    name: str = field(TEXT)  # of the family's member
    config: dict[str, Any] = field(OBJECT, default={})  # its arguments


class IdRange(Record):
    """The integers that an input may hold, and the layer that they are for."""

    low: int = field(ID)  # the least
    high: int = field(ID)  # the greatest
    layer: str = field(TEXT)  # named in errors


class WeightRow(Record):
    """A weight of the model, in Keras' order."""

    name: str = field(TEXT)  # layer/kernel
    shape: tuple[int, ...] = field(ListOf(SIZE), default=())  # as Keras has it
    dtype: DType | None = field(OrNone(DTYPE), default=None)  # it is stored in
    trainable: bool = field(FLAG, default=True)  # whether the optimizer may change it
    layer: str = field(TEXT, default="")  # it belongs to


class RowShape(Kind):
    """The shape of a layer's output without the batch, or a list of the shapes of several."""

    says = "a shape, or a list of shapes"

    def from_json(self, value: Any) -> tuple[Any, ...]:
        several = type(value) is list and any(type(n) is list for n in value)
        return (ListOf(ListOf(SIZE)) if several else ListOf(SIZE)).from_json(value)

    def to_json(self, value: Any) -> list[Any]:
        return [self.to_json(n) if isinstance(n, (tuple, list)) else n for n in value]


class LayerRow(Record):
    """A layer of the model."""

    name: str = field(TEXT)  # with the layers around it: outer/inner
    class_: str = field(TEXT)  # Dense, Conv2D, ...
    output_shape: tuple[Any, ...] = field(RowShape())  # for one row
    parameters: int = field(SIZE)  # numbers in its own weights
    depth: int = field(SIZE, default=0)  # how many layers are around it
    trainable: bool = field(FLAG, default=True)  # whether training may change its weights
    flops: int = field(SIZE, default=0)  # of one row; a multiply-add is 2
    bytes: int = field(SIZE, default=0)  # of its own weights


class Declaration(Record):
    """The model as it was declared and compiled. It is data alone: it names classes, and a reader
    that does not know one says so. A field about outputs is a dict by their names."""

    model: dict[str, Any] | None = field(  # class_name and config; null: it cannot be written down
        OrNone(OBJECT), default=None)
    lacks: str = field(TEXT, default="")  # why there is no model
    custom: tuple[str, ...] = field(ListOf(TEXT), default=())  # its classes that are users' own
    loss: dict[str, NamedConfig | None] = field(  # null: none, or a function
        OneOrNamed(OrNone(NamedConfig), key="name"), default={})
    loss_weights: dict[str, float | None] = field(  # of each loss in their sum
        OneOrNamed(OrNone(LOSS_WEIGHT)), default={})
    metrics: dict[str, tuple[NamedConfig, ...]] = field(  # without those that are functions
        OneOrNamed(ListOf(NamedConfig)), default={})
    optimizer: NamedConfig | None = field(  # null: it does not train
        OrNone(NamedConfig), default=None)


class Metadata(Record):
    """A program's knowledge of the model that it was compiled from. A field about inputs or outputs
    is a dict by their names, in which a single one has the name ""."""

    name: str = field(TEXT)  # of the model
    seed: int = field(SEED)  # of first weights, shuffling and dropout
    classes: dict[str, int | None] = field(OneOrNamed(OrNone(COUNT)))  # labels are below it
    loss: dict[str, NamedConfig | None] = field(  # null: the output has none
        OneOrNamed(OrNone(NamedConfig), key="name"))
    layers: tuple[LayerRow, ...] = field(ListOf(LayerRow))  # in the order they are called
    declaration: Declaration | None = field(  # null: an older ztorch wrote the file
        OrNone(Declaration), default=None)
    batch_size: int = field(COUNT, default=1)  # rows of a step
    axes: dict[str, tuple[int, ...]] = field(  # sizes of each axis that varies, "batch" first
        MapOf(ListOf(COUNT)), default={})
    open_axes: dict[str, str] = field(  # by port: its axes after the batch, "height,width@1-2/1"
        MapOf(TEXT), default={})
    whole_batches: tuple[str, ...] = field(  # functions that count all rows of a batch
        ListOf(TEXT), default=())
    whole_axes: tuple[str, ...] = field(  # axes along which rows are never filled up
        ListOf(TEXT), default=())
    multiples: dict[str, int] = field(  # by axis: a number that its sizes are multiples of
        MapOf(COUNT), default={})
    dtype: str = field(TEXT, default="float32")  # it computes in; mixed_float16, mixed_bfloat16
    input_shape: dict[str, tuple[int, ...]] = field(  # of one row
        OneOrNamed(SHAPE), default={})
    input_dtype: dict[str, DType] = field(OneOrNamed(DTYPE), default={})  # rows are converted to
    input_range: dict[str, IdRange | None] = field(  # null: any number is allowed
        OneOrNamed(OrNone(IdRange), key="low"), default={})
    output_shape: dict[str, tuple[int, ...]] = field(  # of one row
        OneOrNamed(SHAPE), default={})
    output_dtype: dict[str, DType] = field(OneOrNamed(DTYPE), default={})  # of predictions
    outputs_are: str = field(  # the form of predict's result
        OneOf("one", "list", "dict"), default="one")
    target_shape: dict[str, tuple[int, ...] | None] = field(  # of one row; null: no loss
        OneOrNamed(OrNone(SHAPE)), default={})
    target_dtype: dict[str, DType | None] = field(  # null: no loss
        OneOrNamed(OrNone(DTYPE)), default={})
    probabilities: dict[str, bool | None] = field(  # whether targets must be from 0 to 1
        OneOrNamed(OrNone(FLAG)), default={})
    weights: tuple[WeightRow, ...] = field(ListOf(WeightRow), default=())  # in Keras' order
    arguments: tuple[str, ...] | None = field(  # of a function of tensors, in order; null: a model
        OrNone(ListOf(TEXT)), default=None)
    texts: dict[str, TextRecord | None] = field(  # readers of text inputs; null: numbers
        OneOrNamed(OrNone(TextRecord), key="name"), default={})
    pipeline: PipelineRecord | None = field(  # the meaning of columns and classes; null: unknown
        OrNone(PipelineRecord), default=None)

    def check(self) -> None:
        if self.pipeline is not None:
            try:
                self.pipeline.check_shapes(self.input_shape, self.output_shape)
            except BadValue as error:
                raise error.inside("pipeline") from None


# -- the position of the training run -------------------------------------------------------------


class Curves(Record):
    """The history of a run: the measurements of each epoch."""

    history: dict[str, tuple[float, ...]] = field(MapOf(ListOf(SCORE)))  # values by metric
    epoch: tuple[int, ...] = field(ListOf(EPOCHS))  # numbers of the epochs that ended
    epochs_of: dict[str, tuple[int, ...]] = field(MapOf(ListOf(EPOCHS)))  # of each metric's values

    def check(self) -> None:
        for name, values in self.history.items():
            if len(self.epochs_of.get(name, ())) != len(values):
                raise BadValue(list(self.epochs_of.get(name, ())), "as many epochs as the metric "
                               "has values", "epochs_of", name)


class Training(Record):
    """The position of the training run, besides the states."""

    version: int = field(Whole(1, 1))  # of these fields
    epoch: int = field(EPOCHS)  # the next one of this run
    passes: int = field(EPOCHS)  # epochs in all runs: with the seed it decides the next shuffling
    seed: int = field(SEED)  # of shuffling
    batch_size: int = field(COUNT)  # rows of a step
    history: Curves = field(Curves)  # of this run
    resumed: bool = field(FLAG, default=False)  # whether the next fit goes on with this run


# -- all of it ------------------------------------------------------------------------------------


class Snapshot(NamedTuple):
    """A program at one moment."""

    spec: ProgramSpec
    code: bytes
    params: np.ndarray  # the block of states and constants; nothing else changes it
    metadata: Metadata
    training: Training | None = None  # None: it does not train

    def states(self) -> dict[str, tuple[DType, np.ndarray]]:
        """The states that files keep, by name; views of params where they can be."""
        return {s.name: (s.dtype, s.read(self.params))
                for s in self.spec.states.values() if not s.derived}
