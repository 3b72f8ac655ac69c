"""Host layers within a model, which the model computes if their inputs are numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from ztorch.dtypes import DType, f32
from ztorch.errors import ConfigError, Unsupported
from ztorch.graph.op import OPS, constant, shape_error
from ztorch.graph.value import Value
from ztorch.layers.context import Context
from ztorch.layers.core import Input
from ztorch.layers.layer import Layer
from ztorch.layers.naming import snake_case
from ztorch.layers.symbol import SymbolicTensor, as_symbol
from ztorch.tabular.categories import CategoryEncoding, Discretization
from ztorch.tabular.host_layer import HostLayer
from ztorch.tabular.lookups import IntegerLookup


def category_counts(numbers: Value, mode: str, depth: int, weights: Value | None = None,
                    d: DType = f32) -> Value:
    """Counts of categories in output modes other than "int", as `as_category_counts` computes them
    on the host. The first axis is the batch."""
    if numbers.rank == 1 or (mode == "one_hot" and numbers.shape[-1] != 1):
        numbers = OPS.expand_dims(numbers, -1)
    places = OPS.reshape(constant(np.arange(depth), numbers.dtype), (1,) * numbers.rank + (depth,))
    hits = OPS.cast(OPS.equal(OPS.expand_dims(numbers, -1), places), d)
    if weights is not None:
        hits = hits * OPS.expand_dims(OPS.reshape(OPS.cast(weights, d), numbers.shape), -1)
    return OPS.sum(hits, -2) if mode == "count" else OPS.max(hits, -2)


def _integers(x: Value) -> Value:
    """Whole numbers, which Inputs may declare as floats."""
    return x if x.dtype.is_int else OPS.cast(x, "int32")


def _categories(layer: CategoryEncoding, x: Value, context: Context | None,
                count_weights: Value | None = None) -> Value:
    if count_weights is not None and layer.output_mode != "count":
        raise shape_error("count_weights need output_mode='count'", fix="omit them")
    if context is not None:
        context.need_range(x, 0, layer.num_tokens - 1)
    return category_counts(_integers(x), layer.output_mode, layer.num_tokens, count_weights)


def _bins(layer: Discretization, x: Value, context: Context | None) -> Value:
    if layer.bin_boundaries is None:
        raise ConfigError("Discretization has no bin_boundaries; call adapt(data) first")
    x = x if x.dtype.is_float else OPS.cast(x, "float32")
    ends = OPS.reshape(constant(np.asarray(layer.bin_boundaries), x.dtype),
                       (1,) * x.rank + (len(layer.bin_boundaries),))
    bins = OPS.sum(OPS.cast(OPS.expand_dims(x, -1) >= ends, "int32"), -1)
    return bins if layer.output_mode == "int" else category_counts(
        bins, layer.output_mode, len(layer.bin_boundaries) + 1)


def _places(layer: IntegerLookup, x: Value, context: Context | None) -> Value:
    if layer.invert or layer.num_oov_indices > 1 or layer.output_mode == "tf_idf":
        raise Unsupported("IntegerLookup with invert, tf_idf or several num_oov_indices runs on "
                          "the host, before a model: call it on an array, and pass the result to "
                          "the model")
    if layer.vocabulary is None:
        raise ConfigError("IntegerLookup has no vocabulary; call adapt(data) first, or set "
                          "vocabulary=")
    if not layer.num_oov_indices:
        raise Unsupported("IntegerLookup(num_oov_indices=0) raises errors for unknown integers, "
                          "which a model cannot; call it on an array, and pass on the result")
    x = _integers(x)
    masked = layer.mask_token is not None and layer.output_mode == "int"
    codes = {token: k for k, token in enumerate(layer.vocabulary, masked + 1)}
    if layer.mask_token is not None:
        codes[layer.mask_token] = 0 if masked else -1
    tokens, numbers = (OPS.reshape(constant(np.asarray(list(part)), d), (1,) * x.rank + (-1,))
                       for part, d in ((codes, x.dtype), (codes.values(), "int32")))
    unknown = int(masked)
    hits = OPS.equal(OPS.expand_dims(x, -1), tokens)
    places = OPS.sum(OPS.where(hits, numbers - unknown, 0), -1) + unknown
    return places if layer.output_mode == "int" else category_counts(
        places, layer.output_mode, int(layer.max_tokens or 0) if layer.pad_to_max_tokens else
        layer.vocabulary_size())


_FORMULAS: dict[type, Callable[..., Value]] = {
    CategoryEncoding: _categories, Discretization: _bins, IntegerLookup: _places}


class Encoded(Layer):
    """A host layer inside a model: the result of calling `CategoryEncoding`, `Discretization` or
    `IntegerLookup` on an Input.

    Args:
        layer: The host layer, or its config.
        **common: `name`, `trainable` and `input_shape`, as for every `Layer`.

    Input shape:
        Any that the layer accepts. Axis 0 is the batch.

    Output shape:
        That of the layer's result.

    Examples:
        >>> import ztorch as zt
        >>> x = zt.layers.Input((3,), dtype="int32")
        >>> y = zt.layers.CategoryEncoding(5)(x)
        >>> zt.Model(x, y).predict([[0, 2, 2]], verbose=0).tolist()
        [[1.0, 0.0, 1.0, 0.0, 0.0]]
    """

    kinds: ClassVar[dict[str, Any]] = {kind.__name__: kind for kind in _FORMULAS}

    def __init__(self, layer: Any, **common: Any):
        super().__init__(**common)
        self.layer = HostLayer.get(layer)
        if type(self.layer) not in _FORMULAS:
            kind = type(self.layer).__name__
            raise Unsupported(f"{kind} runs on the host, before a model: " + (
                "call it on an Input of text, Input((1,), dtype='string'), or on" if
                self.layer.reads_text else "call it on") + " an array or a list, and pass the "
                             "result to the model")
        if self.given_name is None:
            self.name = self.layer.name or snake_case(type(self.layer).__name__)

    def call(self, x: Value, context: Context, count_weights: Value | None = None) -> Value:
        more = {} if count_weights is None else {"count_weights": count_weights}
        return _FORMULAS[type(self.layer)](self.layer, x, context, **more)


def encode(layer: HostLayer, x: Any, more: dict[str, Any]) -> Any:
    """The result of a host layer on a symbolic tensor; None if x is not symbolic."""
    if isinstance(x, Input) and x.holds_text:
        again = _read_again(x, layer)
        return x.read_by(layer) if again is None else again
    if isinstance(x, Value) and not isinstance(x, SymbolicTensor):
        return Encoded(layer).call(x, None, **more)  # type: ignore[arg-type]
    symbol = as_symbol(x)
    return None if symbol is None else Encoded(layer)(symbol, **more)


def _read_again(x: Input, layer: HostLayer) -> SymbolicTensor | None:
    """The result of a second layer on an Input of text, if it follows from that of the first: of
    lookups in the same vocabulary, one may give places and the other one-hot rows."""
    first: Any = x.encoder
    own, other = ({k: v for k, v in reader.get_config().items() if k not in ("name", "output_mode")}
                  for reader in (first or layer, layer))
    if first is None or type(first) is not type(layer) or own != other:
        return None
    modes = tuple(getattr(reader, "output_mode", "") for reader in (first, layer))
    if modes[0] == modes[1]:
        return x.symbol
    if x.text_shape or own.get("mask_token") is not None:  # places would differ
        return None
    if modes == ("one_hot", "int"):
        places: SymbolicTensor = x.symbol.apply_op("argmax", x.symbol, axis=-1)
        return places
    if modes == ("int", "one_hot"):
        size = x.encoder.vocabulary_size()  # type: ignore[union-attr]
        rows: SymbolicTensor = x.symbol.apply_op("one_hot", x.symbol, size)
        return rows
    return None


def config_of(kind: type[HostLayer], config: Mapping[str, Any]) -> dict[str, Any]:
    """A host layer from a Keras config."""
    accepted = inspect.signature(kind.__init__).parameters
    return {"class_name": kind.__name__, "config": {
        key: value for key, value in config.items() if key in accepted}}


def reader_of_text(kind: str, config: Mapping[str, Any]) -> HostLayer:
    """The host layer that encodes texts, from its Keras config."""
    reader = HostLayer.known.get(kind)
    if reader is None or not reader.reads_text:
        raise ConfigError(f"{kind} does not encode text")
    return HostLayer.get(config_of(reader, config))
