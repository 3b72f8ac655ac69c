"""Model: a network that compiles, and knows its files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ztorch.arguments import checked
from ztorch.compile.traced_model import TracedModel
from ztorch.errors import ConfigError
from ztorch.layers.layer import Layer
from ztorch.layers.naming import MOST_NESTED
from ztorch.layers.network import Network
from ztorch.model.summary import print_summary
from ztorch.model.trace import trace
from ztorch.optimizers import Optimizer

if TYPE_CHECKING:
    from typing_extensions import Self

# What Keras users look for here, and find on the program that compile returns.
_OF_PROGRAMS = ("evaluate", "fit", "generate", "history", "plot", "predict", "predict_on_batch",
                "metrics_names", "save", "stop_training", "test_on_batch", "train_on_batch")


class Model(Network):
    """A model of layers called on tensors, from its inputs to its outputs.

    Both are one, or a list or dict of several; those of a list have the names of their Inputs, and
    of the layers that make them. Layers without a name get one from their class, counted within
    the model: dense, dense_1. A layer called twice is one layer. First weights depend on the seed
    and each weight's name alone; the default seed is 0, or that of the model around it: a model
    can also be a layer of another one.

    >>> from ztorch.layers import Add, Dense, Input
    >>> x = Input((4,))
    >>> hidden = Dense(8, activation="relu")(x)
    >>> model = Model(x, Dense(3)(Add()([hidden, Dense(8)(hidden)])))
    >>> model.output_shape, model.count_params()
    ((3,), 139)
    """

    @checked
    def summary(self, print_fn: Callable[[str], Any] = print) -> None:
        """Prints the layers with output shapes, parameters, FLOPs and bytes."""
        print_summary(self, print_fn)

    @checked
    def save_weights(self, path: str | os.PathLike[str], layout: str | None = None,
                     names: Mapping[str, str] | None = None,
                     flatten_from: str | None = None) -> None:
        """Writes the weights, whole or not at all: as safetensors, named `layer/weight`; for Keras
        where the path ends in .weights.h5; for PyTorch with layout="torch".

        `names` says what layers are called over there: {"dense": "fc1"}. `flatten_from` is the
        order in which features of images lie there, where the layers do not tell it.
        """
        from ztorch.weights import files

        self.need_memory(8)
        self.marks.warn("save_weights of a model writes", ", or program.save_weights(path)", 3)
        files.save(self, path, layout, names, flatten_from)

    @checked
    def load_weights(self, path: str | os.PathLike[str], names: Mapping[str, str] | None = None,
                     flatten_from: str | None = None) -> None:
        """Reads weights that the same model, or a program made of it, wrote; or Keras or PyTorch
        for a model with the same layers: .keras, .weights.h5, .pt and .safetensors.

        `names` and `flatten_from` are those of `save_weights`.
        """
        from ztorch.weights import files

        self.set_weights(files.load(self, path, names, flatten_from))

    # -- description -------------------------------------------------------------------------------

    def to_json(self, **options: Any) -> str:
        """The model's description as JSON; options go to json.dumps."""
        return json.dumps({"class_name": type(self).__name__, "config": self.get_config()},
                          **options)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The model that `to_json` described."""
        try:
            data = json.loads(text)
            kind, config = Layer.known[data["class_name"]], data["config"]
        except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
            kind, config = Layer, None
        if not issubclass(kind, cls) or not isinstance(config, dict):
            raise ConfigError(f"this text does not describe a {cls.__name__}; use that of "
                              "to_json()")
        try:
            return kind.from_config(config)
        except RecursionError:
            raise ConfigError(f"this text describes layers in layers, deeper than {MOST_NESTED}, "
                              "which no model has") from None

    # -- programs ----------------------------------------------------------------------------------

    @checked
    def trace(self, batch_size: int, optimizer: Any = None, loss: Any = None,
              metrics: Any = (), dtype: Any = "float32", seed: int | None = None,
              loss_weights: Any = None, decode: bool = False) -> TracedModel:
        """The graphs of a program: predict, with a loss evaluate, with an optimizer train, and
        where asked for decode."""
        return trace(self, batch_size, optimizer, loss, metrics, dtype, seed, loss_weights, decode)

    @checked
    def compile(self, device: str = "auto", *, batch_size: int = 32, optimizer: Any = None,
                loss: Any = None, metrics: Iterable[Any] = (), dtype: Any = "float32",
                threads: int | None = None, seed: int | None = None,
                loss_weights: Any = None, decode: bool = False,
                matmul_precision: str = "float32") -> Any:
        """A program for one device and batch size: native code for the whole step.

        Without a loss it predicts; with a loss it also evaluates; with an optimizer it trains. Its
        weights are its own from here on, those of the model stay as they are:
        `model.set_weights(program.get_weights())` brings back what it learned, and until then a
        warning says where the model's own are compiled, given or written.
        `seed` changes the random numbers of training (dropout, shuffling), the model's otherwise.
        With several outputs, loss, metrics and loss_weights are lists in their order, or dicts by
        their names; the loss that training makes small is the weighted sum. With `decode` a causal
        model of (length,) whole numbers can also `generate`. With matmul_precision="tf32" a device
        may round the operands of float32 products to 10 bits of mantissa where that is faster.

        `dtype` is "float32", "float64", "mixed_bfloat16" or "mixed_float16". Mixed, the operands of
        all matrix products are rounded to 16 bits and add up in float32, as everything else is
        computed; matrices of weights are stored in 16 bits by a program that only predicts, and
        stay float32 in one that trains. Gradients too small for float16 are scaled on their way.
        """
        if isinstance(device, str) and device.lower() in Optimizer.known:
            raise ConfigError(f"compile takes a device first, and {device!r} is an optimizer; "
                              f"write compile(optimizer={device!r}, ...)")
        from ztorch.compile.pipeline import build  # the compiler is needed from here on, not before
        from ztorch.program.program import Program

        traced = self.trace(batch_size, optimizer, loss, metrics, dtype, seed, loss_weights, decode)
        self.marks.warn("compile starts from", " to go on with them", 3)
        return Program(build(traced.functions, device, self.name, threads, matmul_precision),
                       traced.metadata, self.marks)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_PROGRAMS:
            raise AttributeError(f"a model has no {name!r}, what compile returns has: program = "
                                 f"model.compile(...), then program.{name}")
        return super().__getattr__(name)
