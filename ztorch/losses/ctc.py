"""Connectionist temporal classification: labels without time positions."""

from __future__ import annotations

from ztorch import dtypes
from ztorch.config import positive
from ztorch.dtypes import DType
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.losses.loss import Loss, Shape, TargetSpec


class CTC(Loss, names=("ctc",)):
    """The negative log-likelihood of a sequence of labels, over all their alignments in time.

    Predictions are logits `(batch, steps, classes)`; class 0 is the blank. Targets are int32 class
    numbers `(batch, labels)`, padded with zeros at the end.

    Args:
        max_length: Number of labels per row of targets. `None` takes it from the data, or, while
            there are no data, from the number of steps. Default: `None`.

    Examples:
        >>> from ztorch.dtypes import f32
        >>> CTC(max_length=5).target((8, 20, 30), f32).shape
        (8, 5)
    """

    def __init__(self, max_length: int | None = None):
        self.max_length = None if max_length is None else positive("CTC(max_length=...)",
                                                                   max_length)

    @property
    def takes_any(self) -> bool:
        """Whether the data set the number of labels."""
        return self.max_length is None

    def target(self, shape: Shape, d: DType) -> TargetSpec:
        if len(shape) != 3 or shape[-1] < 2:
            raise shape_error("loss 'ctc' needs logits (steps, classes) per row, not", shape[1:],
                              fix="end the model with Dense(classes) on a sequence")
        return TargetSpec((shape[0], self.max_length or shape[1]), dtypes.i32, shape[-1])

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        count = OPS.sum(OPS.cast(OPS.not_equal(y_true, 0), "int32"), axis=1)
        steps = OPS.full((y_pred.shape[0],), y_pred.shape[1], "int32")
        return OPS.ctc_loss(y_true, y_pred, count, steps)
