"""The data of artifacts: a program with everything its next step depends on."""

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


# -- metadata of the model ------------------------------------------------------------------------


class NamedConfig(Record):
    """A loss, a metric or an optimizer, in the form that `get` of its module takes."""

    name: str = field(TEXT)  # its name
    config: dict[str, Any] = field(OBJECT, default={})  # its arguments


class IdRange(Record):
    """The integers that an input may contain, and the layer that requires it."""

    low: int = field(ID)  # the smallest
    high: int = field(ID)  # the largest
    layer: str = field(TEXT)  # the layer, for errors


class WeightRow(Record):
    """A weight of the model, in Keras' order."""

    name: str = field(TEXT)  # its name, such as layer/kernel
    shape: tuple[int, ...] = field(ListOf(SIZE), default=())  # its shape in Keras
    dtype: DType | None = field(OrNone(DTYPE), default=None)  # dtype in which it is stored
    trainable: bool = field(FLAG, default=True)  # whether the optimizer may change it
    layer: str = field(TEXT, default="")  # the layer that it belongs to


class RowShape(Kind):
    """The shape of a layer's output without the batch, or a list of shapes."""

    says = "a shape, or a list of shapes"

    def from_json(self, value: Any) -> tuple[Any, ...]:
        several = type(value) is list and any(type(n) is list for n in value)
        return (ListOf(ListOf(SIZE)) if several else ListOf(SIZE)).from_json(value)

    def to_json(self, value: Any) -> list[Any]:
        return [self.to_json(n) if isinstance(n, (tuple, list)) else n for n in value]


class LayerRow(Record):
    """A layer of the model."""

    name: str = field(TEXT)  # its name with those of the layers around it: outer/inner
    class_: str = field(TEXT)  # Dense, Conv2D, ...
    output_shape: tuple[Any, ...] = field(RowShape())  # shape of its output for one row
    parameters: int = field(SIZE)  # number of elements of its own weights
    depth: int = field(SIZE, default=0)  # number of layers around it
    trainable: bool = field(FLAG, default=True)  # whether training may change its weights
    flops: int = field(SIZE, default=0)  # FLOPs for one row; a multiply-add counts as 2
    bytes: int = field(SIZE, default=0)  # bytes of its own weights


class Declaration(Record):
    """The declaration of the model, and its arguments of compile. It contains only data: classes
    are named. A field about outputs is a dict by their names."""

    model: dict[str, Any] | None = field(  # class_name and config; null if it has no config
        OrNone(OBJECT), default=None)
    lacks: str = field(TEXT, default="")  # the reason if there is no model
    custom: tuple[str, ...] = field(ListOf(TEXT), default=())  # its classes defined by users
    loss: dict[str, NamedConfig | None] = field(  # null if there is none, or it is a function
        OneOrNamed(OrNone(NamedConfig), key="name"), default={})
    loss_weights: dict[str, float | None] = field(  # weight of each loss in their sum
        OneOrNamed(OrNone(LOSS_WEIGHT)), default={})
    metrics: dict[str, tuple[NamedConfig, ...]] = field(  # without metrics that are functions
        OneOrNamed(ListOf(NamedConfig)), default={})
    optimizer: NamedConfig | None = field(  # null if it does not train
        OrNone(NamedConfig), default=None)


class Metadata(Record):
    """Facts about the model that a program was compiled from. A field about inputs or outputs is a
    dict by their names; a single input or output has the name ""."""

    name: str = field(TEXT)  # name of the model
    seed: int = field(SEED)  # seed of initial weights, shuffling and dropout
    classes: dict[str, int | None] = field(OneOrNamed(OrNone(COUNT)))  # number of classes
    loss: dict[str, NamedConfig | None] = field(  # null if the output has none
        OneOrNamed(OrNone(NamedConfig), key="name"))
    layers: tuple[LayerRow, ...] = field(ListOf(LayerRow))  # in the order of their calls
    declaration: Declaration | None = field(  # null if an older ztorch wrote the file
        OrNone(Declaration), default=None)
    batch_size: int = field(COUNT, default=1)  # rows of a step
    axes: dict[str, tuple[int, ...]] = field(  # sizes of each axis that varies, "batch" first
        MapOf(ListOf(COUNT)), default={})
    open_axes: dict[str, str] = field(  # axes of each port after the batch: "height,width@1-2/1"
        MapOf(TEXT), default={})
    whole_batches: tuple[str, ...] = field(  # functions whose batches are never padded
        ListOf(TEXT), default=())
    whole_axes: tuple[str, ...] = field(  # axes along which rows are never padded
        ListOf(TEXT), default=())
    multiples: dict[str, int] = field(  # a number that sizes are multiples of, by axis
        MapOf(COUNT), default={})
    dtype: str = field(TEXT, default="float32")  # dtype of its arithmetic, or mixed_float16, ...
    input_shape: dict[str, tuple[int, ...]] = field(  # shape of one row
        OneOrNamed(SHAPE), default={})
    input_dtype: dict[str, DType] = field(OneOrNamed(DTYPE), default={})  # rows are cast to it
    input_range: dict[str, IdRange | None] = field(  # null if any number is allowed
        OneOrNamed(OrNone(IdRange), key="low"), default={})
    output_shape: dict[str, tuple[int, ...]] = field(  # shape of one row
        OneOrNamed(SHAPE), default={})
    outputs_are: str = field(  # the form of predict's result
        OneOf("one", "list", "dict"), default="one")
    target_shape: dict[str, tuple[int, ...] | None] = field(  # shape of one row; null: no loss
        OneOrNamed(OrNone(SHAPE)), default={})
    probabilities: dict[str, bool | None] = field(  # whether targets must be between 0 and 1
        OneOrNamed(OrNone(FLAG)), default={})
    weights: tuple[WeightRow, ...] = field(ListOf(WeightRow), default=())  # in Keras' order
    arguments: tuple[str, ...] | None = field(  # arguments of a function of tensors; null: a model
        OrNone(ListOf(TEXT)), default=None)
    texts: dict[str, TextRecord | None] = field(  # encodings of text inputs; null: numbers
        OneOrNamed(OrNone(TextRecord), key="name"), default={})
    pipeline: PipelineRecord | None = field(  # encoding of columns and classes; null: unknown
        OrNone(PipelineRecord), default=None)

    def check(self) -> None:
        if self.pipeline is not None:
            try:
                self.pipeline.check_shapes(self.input_shape, self.output_shape)
            except BadValue as error:
                raise error.inside("pipeline") from None


# -- the position of the training run -------------------------------------------------------------


class Curves(Record):
    """The history of a training run: the metrics of each epoch."""

    history: dict[str, tuple[float, ...]] = field(MapOf(ListOf(SCORE)))  # values by metric
    epoch: tuple[int, ...] = field(ListOf(EPOCHS))  # numbers of finished epochs
    epochs_of: dict[str, tuple[int, ...]] = field(MapOf(ListOf(EPOCHS)))  # epochs of these values

    def check(self) -> None:
        for name, values in self.history.items():
            if len(self.epochs_of.get(name, ())) != len(values):
                raise BadValue(list(self.epochs_of.get(name, ())), "as many epochs as the metric "
                               "has values", "epochs_of", name)


class Training(Record):
    """The position of the training run, besides the states."""

    version: int = field(Whole(1, 1))  # version of these fields
    epoch: int = field(EPOCHS)  # the next epoch of this run
    passes: int = field(EPOCHS)  # epochs of all runs, which with the seed determine the shuffling
    seed: int = field(SEED)  # seed of shuffling
    batch_size: int = field(COUNT)  # rows of a step
    history: Curves = field(Curves)  # history of this run
    resumed: bool = field(FLAG, default=False)  # whether the next fit continues this run


# -- the whole program ----------------------------------------------------------------------------


class Snapshot(NamedTuple):
    """A program with its states at one time."""

    spec: ProgramSpec
    code: bytes
    params: np.ndarray  # the block of states and constants, which the snapshot owns
    metadata: Metadata
    training: Training | None = None  # None if it does not train

    def states(self) -> dict[str, tuple[DType, np.ndarray]]:
        """The states that files store, by name; views of params if possible."""
        return {s.name: (s.dtype, s.read(self.params))
                for s in self.spec.states.values() if not s.derived}
