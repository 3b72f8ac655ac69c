"""Metrics of segmentation: the overlap of predicted and true regions of a class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ztorch.config import number, positive, whole, whole_numbers
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS, constant, shape_error
from ztorch.graph.value import Value
from ztorch.metrics.confusion import ratio
from ztorch.metrics.metric import SumMetric, Weigh


class IoU(SumMetric, names=("io_u", "iou")):
    """The mean over classes of the intersection over union of their regions.

    Classes absent from both targets and predictions are left out.

    Args:
        num_classes: Number of classes.
        target_class_ids: The classes that count.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.
        ignore_class: Positions with this target are ignored. `None` ignores none. Default: `None`.
        sparse_y_true: Whether targets hold class numbers instead of one number per class. Default:
            `True`.
        sparse_y_pred: Whether predictions hold class numbers instead of one number per class.
            Default: `True`.

    Examples:
        >>> IoU(num_classes=3, target_class_ids=[1]).target_class_ids
        (1,)
    """

    def __init__(self, num_classes: int, target_class_ids: Sequence[int], name: str | None = None,
                 ignore_class: int | None = None, sparse_y_true: bool = True,
                 sparse_y_pred: bool = True):
        super().__init__(name)
        kind = type(self).__name__
        self.num_classes = positive(f"{kind}(num_classes=...)", num_classes)
        self.target_class_ids = whole_numbers(f"{kind}(target_class_ids=...)", target_class_ids)
        if not all(0 <= n < self.num_classes for n in self.target_class_ids):
            raise ConfigError(f"{kind}(target_class_ids={target_class_ids!r}) must be numbers "
                              f"from 0 to {self.num_classes - 1}")
        self.ignore_class = None if ignore_class is None else whole(
            f"{kind}(ignore_class=...)", ignore_class, least=-(1 << 31))
        self.sparse_y_true, self.sparse_y_pred = sparse_y_true, sparse_y_pred

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        y = y_true if self.sparse_y_true else OPS.argmax(y_true, axis=-1)
        p = y_pred if self.sparse_y_pred else OPS.argmax(y_pred, axis=-1)
        if y.size != p.size:
            raise shape_error(f"metric {self.name!r} compares a class with a class, not", y.shape,
                              p.shape, fix="set sparse_y_true=False or sparse_y_pred=False for "
                                           "one number per class")
        y, p = OPS.cast(OPS.reshape(y, p.shape), "int32"), OPS.cast(p, "int32")
        floats = y_pred.dtype
        counts = OPS.expand_dims(OPS.cast(OPS.ones_like(y), floats), -1)
        if self.ignore_class is not None:
            keeps = OPS.not_equal(y, self.ignore_class)
            counts = OPS.expand_dims(OPS.cast(keeps, floats), -1)
        classes = OPS.iota((*p.shape, self.num_classes), -1, "int32")
        true, predicted = (OPS.cast(OPS.equal(OPS.expand_dims(x, -1), classes), floats) * counts
                           for x in (y, p))
        axes = tuple(range(y.rank))
        return {"both": OPS.sum(weigh(true * predicted), axis=axes),
                "true": OPS.sum(weigh(true), axis=axes),
                "predicted": OPS.sum(weigh(predicted), axis=axes)}

    def result(self, sums: Mapping[str, Value]) -> Value:
        common = sums["both"]
        union = sums["true"] + sums["predicted"] - common
        chosen = np.zeros(self.num_classes)
        chosen[list(self.target_class_ids)] = 1
        counted = OPS.cast(OPS.not_equal(union, 0.0), union.dtype) * constant(chosen, union.dtype)
        return ratio(OPS.sum(ratio(common, union) * counted), OPS.sum(counted))


class BinaryIoU(IoU, names=("binary_io_u", "binary_iou")):
    """Intersection over union of two classes; predictions from a threshold on are class 1.

    Args:
        target_class_ids: The classes that count. Default: `(0, 1)`.
        threshold: Predictions of at least it are class 1, others class 0. Default: `0.5`.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.

    Examples:
        >>> BinaryIoU(threshold=0.3).threshold
        0.3
    """

    def __init__(self, target_class_ids: Sequence[int] = (0, 1), threshold: float = 0.5,
                 name: str | None = None):
        super().__init__(2, target_class_ids, name)
        self.threshold = number("BinaryIoU(threshold=...)", threshold)

    def sums(self, y_true: Value, y_pred: Value, weigh: Weigh) -> dict[str, Value]:
        labels = OPS.cast(y_pred >= self.threshold, y_pred.dtype)
        return super().sums(y_true, labels, weigh)


class OneHotIoU(IoU, names=("one_hot_io_u", "one_hot_iou")):
    """Intersection over union of classes, for one-hot targets and predictions with one number per
    class.

    Args:
        num_classes: Number of classes.
        target_class_ids: The classes that count.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.
        ignore_class: Positions with this target are ignored. `None` ignores none. Default: `None`.
        sparse_y_pred: Whether predictions hold class numbers. Default: `False`.

    Examples:
        >>> OneHotIoU(num_classes=3, target_class_ids=[1]).sparse_y_true
        False
    """

    def __init__(self, num_classes: int, target_class_ids: Sequence[int], name: str | None = None,
                 ignore_class: int | None = None, sparse_y_pred: bool = False):
        super().__init__(num_classes, target_class_ids, name, ignore_class, False, sparse_y_pred)


class MeanIoU(IoU, names=("mean_io_u", "mean_iou")):
    """The mean intersection over union of all classes.

    Classes absent from both targets and predictions are left out.

    Args:
        num_classes: Number of classes.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.
        ignore_class: Positions with this target are ignored. `None` ignores none. Default: `None`.
        sparse_y_true: Whether targets hold class numbers instead of one number per class. Default:
            `True`.
        sparse_y_pred: Whether predictions hold class numbers instead of one number per class.
            Default: `True`.

    Examples:
        >>> MeanIoU(num_classes=3, sparse_y_pred=False).target_class_ids
        (0, 1, 2)
    """

    def __init__(self, num_classes: int, name: str | None = None,
                 ignore_class: int | None = None, sparse_y_true: bool = True,
                 sparse_y_pred: bool = True):
        classes = range(positive("MeanIoU(num_classes=...)", num_classes))
        super().__init__(num_classes, tuple(classes), name, ignore_class, sparse_y_true,
                         sparse_y_pred)


class OneHotMeanIoU(MeanIoU, names=("one_hot_mean_io_u", "one_hot_mean_iou")):
    """The mean intersection over union of all classes, for one-hot targets and predictions with one
    number per class.

    Args:
        num_classes: Number of classes.
        name: Name in the history. `None` uses the metric's own name. Default: `None`.
        ignore_class: Positions with this target are ignored. `None` ignores none. Default: `None`.
        sparse_y_pred: Whether predictions hold class numbers. Default: `False`.

    Examples:
        >>> OneHotMeanIoU(num_classes=3).target_class_ids
        (0, 1, 2)
    """

    def __init__(self, num_classes: int, name: str | None = None,
                 ignore_class: int | None = None, sparse_y_pred: bool = False):
        super().__init__(num_classes, name, ignore_class, False, sparse_y_pred)
