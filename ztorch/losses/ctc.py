"""Connectionist temporal classification: labels without their places in time."""

from __future__ import annotations

from ztorch import dtypes
from ztorch.config import positive
from ztorch.dtypes import DType
from ztorch.graph.op import OPS, shape_error
from ztorch.graph.value import Value
from ztorch.losses.loss import Loss, Shape, TargetSpec


class CTC(Loss, names=("ctc",)):
    """The negative log-likelihood of labels, over all ways to place them in time.

    Predictions are logits `(batch, steps, classes)`, and class 0 means no label. Targets are
    class numbers `(batch, labels)` as int32; zeros at the end fill up shorter ones.

    Args:
        max_length: Number of labels of a row of targets. `None` means as many as data have, or,
            where none are known yet, as there are steps. Default: `None`.

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
        """Whether data tell the number of labels."""
        return self.max_length is None

    def target(self, shape: Shape, d: DType) -> TargetSpec:
        if len(shape) != 3 or shape[-1] < 2:
            raise shape_error("loss 'ctc' needs logits (steps, classes) of a row, not", shape[1:],
                              fix="end the model with Dense(classes) on a sequence")
        return TargetSpec((shape[0], self.max_length or shape[1]), dtypes.i32, shape[-1])

    def values(self, y_true: Value, y_pred: Value, from_logits: bool) -> Value:
        count = OPS.sum(OPS.cast(OPS.not_equal(y_true, 0), "int32"), axis=1)
        steps = OPS.full((y_pred.shape[0],), y_pred.shape[1], "int32")
        return OPS.ctc_loss(y_true, y_pred, count, steps)
