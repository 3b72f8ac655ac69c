"""Weights of layers: arrays on the host, with which programs start."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from ztorch import dispatch, ops
from ztorch.arguments import need_no_mask
from ztorch.dtypes import DType, f32
from ztorch.errors import ConfigError, WeightsError
from ztorch.graph.op import ALIASES, REGISTRY
from ztorch.graph.value import StandIn, Value
from ztorch.host.memory import aligned
from ztorch.initializers import Initializer, Shape, stream
from ztorch.layers.tree import LayerNode

if TYPE_CHECKING:
    from ztorch.constraints import Constraint
    from ztorch.regularizers import Regularizer


class Reader(Protocol):
    """The part of a trace's context that weights need."""

    def read(self, weight: Weight) -> Value: ...


# The context of the layer whose call is being traced.
tracing: ContextVar[Reader | None] = ContextVar("tracing", default=None)


class Home(Protocol):
    """The part of a program that weights need, while it holds their values."""

    @property
    def busy(self) -> bool:
        """Whether it trains."""

    def version(self, name: str | None) -> object:
        """A version: equal to an earlier one only if the value, or all (None), are unchanged."""

    def read(self, name: str) -> np.ndarray:
        """A copy of a value."""

    def write(self, name: str, array: np.ndarray) -> None:
        """Sets a value."""


@dataclass(frozen=True, eq=False, repr=False)
class FirstValue:
    """The rule of a state's first value.

    >>> FirstValue(lambda: [1, 2], np.dtype("float32"))()
    array([1., 2.], dtype=float32)
    """

    draw: Callable[[], Any]
    dtype: np.dtype | type
    # Returns a rule for this value that may be called later and beside others; None: there is none.
    deferred: Callable[[], Callable[[], Any] | None] | None = None

    def __call__(self) -> np.ndarray:
        return np.asarray(self.draw(), self.dtype)

    def later(self) -> FirstValue | None:
        """A rule for the value of now that may be called later, in any thread."""
        draw = self.deferred() if self.deferred else None
        return None if draw is None else FirstValue(draw, self.dtype)


def _drawn(initializer: Initializer, shape: Shape, seed: int, path: str) -> np.ndarray:
    # Large blocks are pages of their own, which the system gets back at once.
    drawn = aligned(4 * math.prod(shape)).view(np.float32).reshape(shape)
    initializer.write(drawn, stream(seed, path))
    return drawn


class Weight(StandIn):
    """An array of a layer. Its initial values are drawn when it is first read.

    The value is on the host, or in its home: the program that was last compiled or trained with the
    weight. In the `call` of a layer written as in Keras, a weight acts as its tensor: `x @
    self.kernel`. Outside of calls and steps it acts as a tensor of its current value.
    """

    last_change: ClassVar[object] = object()  # a new one with each change of a value on the host
    is_alone = False  # whether it is a variable that no layer has taken yet

    def __init__(self, layer: LayerNode, name: str, shape: Shape, initializer: Initializer,
                 trainable: bool):
        self.layer = layer
        self.name = name
        self.shape = shape
        self.initializer = initializer
        self.trainable = trainable
        self.has_own_name = True  # False: named after the attribute that holds it
        self.regularizer: Regularizer | None = None  # its penalty in the loss
        self.constraint: Constraint | None = None  # applied after each training step
        self._value: np.ndarray | None = None  # on the host, or a copy of the value at home
        self._home: tuple[Home, str] | None = None  # with the name of the weight there
        self._version: object = 0  # of `_value`

    @property
    def path(self) -> str:
        """The name in weight files and programs: `dense/kernel`."""
        return f"{self.layer.path}/{self.name}" if self.layer.path else self.name

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def trains(self) -> bool:
        """Whether an optimizer may change it."""
        return self.trainable and self.layer.trains

    @property
    def value(self) -> np.ndarray:
        """The current array. It is the same object until the value changes."""
        version = self.version
        if self._home is not None and (self._value is None or self._version != version):
            home, name = self._home
            self._value, self._version = home.read(name), version
        elif self._value is None:
            self._value = self._drawn()
        return self._value

    @value.setter
    def value(self, array: Any) -> None:
        self._value = self.checked(array)
        if self._home is None:
            self._version = Weight.last_change = object()
        else:
            home, name = self._home
            home.write(name, self._value)
            self._version = self.version

    def first_value(self) -> np.ndarray:
        """The array for a program that starts with it. If it was never read, it is drawn for the
        program only, so the host keeps no second copy."""
        return self._drawn() if self._home is None and self._value is None else self.value

    def _drawn(self) -> np.ndarray:
        return _drawn(self.initializer, self.shape, self.layer.model_seed, self.path)

    def drawn_later(self) -> Callable[[], np.ndarray] | None:
        """What draws the first value, whatever happens to the weight until then. None if it must be
        drawn now."""
        if self.has_first_value and self.initializer.is_independent:
            return functools.partial(_drawn, self.initializer, self.shape, self.layer.model_seed,
                                     self.path)
        return None

    @property
    def version(self) -> object:
        """A version: equal to an earlier one only if the value is unchanged."""
        if self._home is None:
            return self._version
        home, name = self._home
        return home, home.version(name)

    @property
    def has_first_value(self) -> bool:
        """Whether the value is the one that the initializer draws, and no other was ever set."""
        return self._home is None and self._version == 0

    def lives_in(self, home: Home) -> bool:
        """Whether the value is in this program."""
        return self._home is not None and self._home[0] is home

    @property
    def home_trains(self) -> bool:
        """Whether its home is a program that is training now."""
        return self._home is not None and self._home[0].busy

    def move(self, home: Home | None, name: str = "") -> None:
        """Moves the value to a program, under this name; None moves it to the host."""
        if home is None and self._home is not None:
            self._value, self._version = self.value, object()
        elif home is not None:
            self._value = None  # the program has it
        self._home = None if home is None else (home, name)
        Weight.last_change = object()

    @property
    def home(self) -> Home | None:
        """The program that has the value; None: `last_change` tells of changes."""
        return None if self._home is None else self._home[0]

    def __getstate__(self) -> dict[str, Any]:
        """A copy of the weight has its own value, on the host."""
        value = self._value if self._home is None else self.value.copy()
        return {**vars(self), "_value": value, "_home": None, "_version": object()}

    def checked(self, array: Any) -> np.ndarray:
        """A copy of the array as float32 or float64, or a WeightsError if it does not fit."""
        need_no_mask(f"weight {self.path!r}", array)
        numbers = np.asarray(array)
        if numbers.shape != self.shape:
            raise WeightsError(f"weight {self.path!r} has shape {self.shape}, but the array has "
                               f"{numbers.shape}; use weights of a model with the same layers")
        if numbers.dtype.kind not in "fiu":
            raise WeightsError(f"weight {self.path!r} takes numbers, not {numbers.dtype}")
        # float64 is kept, so that weights of a float64 program survive a round trip
        return numbers.astype(np.float64 if numbers.dtype == np.float64 else np.float32)

    def assign(self, value: Any) -> None:
        """Sets the value: to an array, or, while a layer or a step is traced, to a tensor.

        Programs keep the assignments of a training step, and layers called on tensors keep those of
        the call. Evaluation and prediction leave weights unchanged.

        Args:
            value: An array or a tensor of the weight's shape.

        Raises:
            WeightsError: The value has another shape.
        """
        context: Any = tracing.get()
        if context is None:
            self.value = value
            return
        self.need_layer()
        tensor = tensors_of(value)
        shape = tuple(getattr(tensor, "shape", ()))
        if shape != self.shape:
            raise WeightsError(f"weight {self.path!r} has shape {self.shape}, is assigned {shape}")
        context.assign(self, tensor)

    def assign_add(self, value: Any) -> None:
        """Adds to the value, with the effect of `assign`."""
        self.assign((self.value if tracing.get() is None else self.tensor) + value)

    def assign_sub(self, value: Any) -> None:
        """Subtracts from the value, with the effect of `assign`."""
        self.assign((self.value if tracing.get() is None else self.tensor) - value)

    def numpy(self) -> np.ndarray:
        """A copy of the value; an error in a function that is being compiled."""
        dispatch.need_known(f"weight {self.path!r}")
        return self.value.copy()

    @property
    def dtype(self) -> DType:
        """The dtype of the tensor: that of the model while it is traced, else float32."""
        return f32 if tracing.get() is None else self.tensor.dtype

    @property
    def tensor(self) -> Any:
        """The weight as a tensor: of the traced graph, or with its current numbers."""
        context = tracing.get()
        if context is None:
            return dispatch.weight_tensor(self)
        self.need_layer()
        return context.read(self)

    def numbers(self) -> Any:
        return self.tensor if tracing.get() is None else self

    def need_layer(self) -> None:
        """Raises a ConfigError if no layer has it, so that a model would not train it."""

    @property
    def compares(self) -> bool:
        """Whether == compares elements: where the weight is a tensor of a graph."""
        return tracing.get() is not None

    @staticmethod
    def apply_op(name: str, *args: Any, **attrs: Any) -> Any:
        if tracing.get() is None:
            return dispatch.on_weights(name, args, attrs)
        return getattr(ops, name)(*map(tensors_of, args),
                                  **{k: tensors_of(x) for k, x in attrs.items()})

    @staticmethod
    def ops() -> tuple[Any, ...]:
        return REGISTRY, ALIASES

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if tracing.get() is None:
            return np.asarray(self.numpy(), dtype)
        raise ConfigError(f"weight {self.path!r} has no numbers in the call of a layer; use zt.ops "
                          f"there, or context.read(self.{self.name}) if it takes a context")

    def __repr__(self) -> str:
        return f"<weight {self.path} {self.shape}>"


def tensors_of(x: Any) -> Any:
    """An argument of an op with each weight replaced by its tensor, also within lists."""
    if isinstance(x, Weight):
        return x.tensor
    return type(x)(map(tensors_of, x)) if type(x) in (list, tuple) else x
