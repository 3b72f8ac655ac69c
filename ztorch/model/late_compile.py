"""Compilation once data are known, for shapes and sizes that `compile` lacked."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.dtypes import f32, i32
from ztorch.errors import ConfigError
from ztorch.feed.row_shapes import is_loader, stream_part, total_rows
from ztorch.feed.row_sizes import sizes_seen
from ztorch.feed.texts import TextReader, with_numbers
from ztorch.layers.axes import whole_axes
from ztorch.layers.naming import port
from ztorch.layers.open_models import keep_rows_whole
from ztorch.losses import TargetSpec
from ztorch.model.objectives import losses_of
from ztorch.model.open_axes import multiples_of
from ztorch.model.step_functions import StepData, own_functions
from ztorch.runtime.buckets import parse_open_axes
from ztorch.runtime.snapshot import Metadata

if TYPE_CHECKING:
    from ztorch.layers.network import Network
    from ztorch.program.program import Program

STEP = 8  # chosen sizes are multiples of it, so that vectors and tiles are full
MOST = {1: 4, 2: 2}  # maximum sizes per axis, by the number of open axes; with three or more, 1
MOST_WHOLE = 8  # maximum sizes of an axis along which rows are never padded


class LateCompile:
    """A compile that waits for data.

    Args:
        arguments: The arguments of `compile`, by name.
        resume: Restores states of the program when it is compiled, for a model that was trained
            before. Default: `None`.

    Attributes:
        sizes: The sizes of open axes that fit all data so far.
    """

    def __init__(self, arguments: Mapping[str, Any],
                 resume: Callable[[Program], None] | None = None):
        self.arguments = dict(arguments)
        self.resume = resume
        self.sizes: dict[str, tuple[int, ...]] = {}
        self._data_sizes: dict[str, set[int]] = {}
        self.targets: dict[str, TargetSpec] | None = None  # that no loss describes; None: unknown
        self.needs_targets = False  # before it evaluates or trains
        self.batches: tuple[int, ...] = ()  # batch sizes of such steps
        self.weight_axes: dict[str, int] = {}  # of steps, that weights of the only output have
        self.step_data = StepData()  # the form of the data of such steps
        self._compiled: Any = None  # the data it is compiled for
        self._read: list[Callable[[], Any]] = []  # loaders whose sizes are known

    def __getstate__(self) -> dict[str, Any]:
        """Copies of a model have no program yet."""
        return {**vars(self), "_compiled": None, "_read": []}

    def keep(self) -> None:
        """Records that the model is compiled for the shapes known so far."""
        self._compiled = self._known

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """A `with` block that compiles. If it fails, the next call fails for the same reason."""
        try:
            yield
        except BaseException:
            self._compiled = None
            raise

    @property
    def is_due(self) -> bool:
        """Whether the compiled program does not fit all data."""
        return bool(self._compiled != self._known)

    @property
    def _known(self) -> Any:
        return dict(self.sizes), self.batches, self.targets, self.step_data, self.weight_axes

    @property
    def follows_data(self) -> bool:
        """Whether the data determine the sizes of open axes."""
        return self.arguments["sizes"] is None

    def hold(self, model: Network, x: Any) -> None:
        """Chooses sizes that also fit x."""
        keep_rows_whole(model)
        if any(own() is x for own in self._read):
            return
        if is_loader(x):
            self._read.append(weakref.ref(x))
        x = with_numbers(x, {name: TextReader(declared.encoder, declared.text_shape) for
                             name, declared in model.inputs_by_name.items() if declared.encoder})
        for name, sizes in sizes_seen(x, model.open_axes, list(model.inputs_by_name)).items():
            data_sizes = self._data_sizes[name] = self._data_sizes.get(name, set()) | sizes
            if name in whole_axes(model):
                self.sizes[name] = _exact_sizes(name, data_sizes, model)
            elif max(sizes) > self.sizes.get(name, (0,))[-1]:
                most = MOST.get(len(model.axis_names), 1)
                step = multiples_of(model).get(name, 1)
                self.sizes[name] = chosen(min(data_sizes), max(data_sizes), most, step)

    def hold_whole(self, model: Network) -> dict[str, tuple[int, ...]]:
        """Takes exactly the sizes of the data, since rows cannot be padded, and returns them."""
        self.sizes = {name: _exact_sizes(name, sizes, model)
                      for name, sizes in self._data_sizes.items()}
        return self.sizes

    def to_predict(self) -> dict[str, Any]:
        """The arguments with which to compile while nothing is trained yet."""
        return {**self.arguments, "loss": None, "optimizer": None, "metrics": (),
                "loss_weights": None, "sizes": self.sizes or self.arguments["sizes"]}

    def hold_batches(self, x: Any, batch_size: int, split: float) -> None:
        """Chooses batch sizes for a function that combines rows: they are never padded. `split` is
        the fraction of rows for validation."""
        rows = total_rows(x)
        parts = [] if rows is None else [int(rows * (1.0 - split))]
        parts += [rows - parts[0]] if rows is not None and split else []
        needed = {batch_size, *(n % batch_size for n in parts)} - {0}
        if not needed <= {*self.batches} or batch_size != self.batches[-1]:
            self.batches = tuple(sorted(needed | {n for n in self.batches if n < batch_size}))

    def hold_given_targets(self, x: Any, y: Any, weighted: bool, axes: dict[str, int]) -> None:
        """Records the form of the data of a custom step. `weighted` is whether weights are passed
        beside x; batches may contain them, too. `axes` are those of steps that weights have."""
        self.weight_axes = axes if {*axes} == {""} else self.weight_axes
        self.step_data = StepData(
            self.step_data.weights or weighted or stream_part(x, 2) is not None,
            isinstance(x, (list, tuple)) or stream_part(x, 0) is not None,
            y is not None or stream_part(x, 1) is not None)
        if self.arguments["loss"] is None:
            self.targets = target_specs(x, y)
        elif self.targets is None:
            self.targets = {}

    def takes_any(self, model: Network) -> bool:
        """Whether a loss accepts targets unchanged, or has no predictions to compare them with: a
        step calls it."""
        loss = self.arguments["loss"]
        return loss is not None and (model.has_steps_alone or any(
            each.takes_any for each in losses_of(model, loss, None, ()).values()))

    def hold_targets(self, x: Any, y: Any, model: Network, program: Program | None) -> None:
        """Records the form of targets that losses accept unchanged, if a program expects another
        form."""
        if not self.takes_any(model):
            return
        y = y if y is not None else stream_part(x, 1)
        if y is not None and not isinstance(y, Mapping):
            several = len(model.output_names) > 1 and isinstance(y, (list, tuple))
            y = dict(zip(model.output_names, y, strict=False)) if several else {"": y}
        targets = target_specs(None, y)
        if program is None or not all(_accepts(program.metadata, name, spec)
                                      for name, spec in targets.items()):
            self.targets, self.needs_targets = targets, False

    def own_functions(self, model: Network) -> frozenset[str]:
        """The functions of its program that steps of the model define."""
        return own_functions(model, self.arguments["loss"], self.arguments["optimizer"])

    def due(self, function: str) -> dict[str, Any] | None:
        """The arguments with which to compile now; None if the compiled program fits all data."""
        if not self.is_due:
            return None
        self.keep()
        predicts = function == "predict" and self.targets is None and self.arguments["loss"] is None
        arguments = self.to_predict() if predicts else {
            **self.arguments, "sizes": self.sizes or self.arguments["sizes"]}
        if self.batches:
            sizes = self.arguments["batch_size"]
            more = sizes if isinstance(sizes, (list, tuple)) else ()
            arguments["batch_size"] = tuple(sorted({*self.batches, *more}))
        if self.weight_axes and not predicts:
            arguments["weighted"] = self.weight_axes
        if predicts or self.targets is None:
            return arguments
        return {**arguments, "targets": self.targets, "step_data": self.step_data}


def target_specs(x: Any, y: Any) -> dict[str, TargetSpec]:
    """The shapes and dtypes of targets that no loss describes: of y, or of the batches of x."""
    y = y if y is not None else stream_part(x, 1)
    if y is None:
        return {}
    named = y if isinstance(y, Mapping) else {"": y}
    if isinstance(y, (list, tuple)) and all(hasattr(part, "shape") for part in y):
        named = {str(k): part for k, part in enumerate(y)}
    arrays = {name: _rows_of(part) for name, part in named.items()}
    return {name: TargetSpec((1, *a.shape[1:]), i32 if str(a.dtype).startswith(
        ("int", "uint", "bool")) else f32) for name, a in arrays.items()}


def _rows_of(y: Any) -> Any:
    """Targets as an array; the first row if rows differ in length."""
    if hasattr(y, "dtype") and y.dtype != object:
        return y
    if len({np.shape(row) for row in y}) > 1:
        y = y[:1]
    return np.asarray(y if isinstance(y, list) else list(y))


def _accepts(metadata: Metadata, output: str, spec: TargetSpec) -> bool:
    """Whether a program accepts targets, whose size along open axes may vary."""
    shape = metadata.target_shape.get(output)
    if shape is None:
        return False
    axes = parse_open_axes(metadata.open_axes.get(port("y", output), ""))
    expected, offered = (math.prod(n for k, n in enumerate(sizes) if k not in axes)
                         for sizes in (shape, spec.shape[1:]))
    return expected == offered and (not axes or len(shape) == len(spec.shape) - 1)


def _exact_sizes(axis: str, sizes: set[int], model: Network) -> tuple[int, ...]:
    """Sizes of rows that are never padded: exactly those of the data."""
    if len(sizes) > MOST_WHOLE:
        raise ConfigError(f"rows have {len(sizes)} sizes along axis {axis!r}, and model "
                          f"{model.name!r}, which mixes positions along it, is compiled for each "
                          f"size; reduce them to at most {MOST_WHOLE} sizes")
    return tuple(sorted(sizes))


def chosen(low: int, high: int, most: int, of: int = 1) -> tuple[int, ...]:
    """Sizes for rows of `low` to `high` steps: the longest, then halves; at most `most`, all
    multiples of `of`.

    Size 1 is never chosen: the axis could not be told from a missing one.

    >>> chosen(50, 50, 4), chosen(3, 60, 4), chosen(3, 60, 1), chosen(1, 1, 4)
    ((50,), (8, 16, 32, 64), (64,), (2,))
    >>> chosen(30, 90, 4, of=3)
    (48, 96)
    """
    if low == high:
        return (-(-max(high, 2) // of) * of,)
    step = math.lcm(STEP, of)
    sizes = [-(-high // step) * step]
    while len(sizes) < most and sizes[-1] > step and sizes[-1] / 2 >= low:
        sizes.append(-(-sizes[-1] // 2 // step) * step)
    return tuple(sorted(set(sizes)))
