"""The base class of layers: arguments, weights, the traced call, and layers inside layers."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Any, cast

from ztorch import dispatch
from ztorch.errors import ConfigError
from ztorch.graph.op import shape_error
from ztorch.graph.value import Value, current_layer, layer_scope
from ztorch.initializers import Initializer, Shape
from ztorch.layers.axes import OpenSize, checked_shape
from ztorch.layers.building import BuiltLayer
from ztorch.layers.called import OF_FIRST_CALL, CalledLayer, made_with_model, never_called
from ztorch.layers.calling import check_call, need_adopted, need_floats, without_call
from ztorch.layers.context import Context
from ztorch.layers.declaring import declare
from ztorch.layers.input_spec import check_inputs
from ztorch.layers.layer_weights import LayerWeights
from ztorch.layers.masks import WithMasks
from ztorch.layers.naming import checked_name, need_shallow, snake_case, unused
from ztorch.layers.on_tensors import OnTensors, has_numbers, in_graph
from ztorch.layers.own_policy import WithPolicy
from ztorch.layers.plain_calls import (
    default_training,
    is_plain,
    need_free,
    weight_arguments,
    with_context,
)
from ztorch.layers.symbol import leaves, nested, symbols
from ztorch.layers.weight import Weight, tensors_of, tracing
from ztorch.layers.weight_rules import WithWeightRules, with_initializers_checked
from ztorch.names.names_elsewhere import no_attribute
from ztorch.tabular.host_layer import HostLayer

_serial = itertools.count()


class Layer(WithWeightRules, WithPolicy, LayerWeights, BuiltLayer, OnTensors, WithMasks,
            CalledLayer, family="layer", such_as="ReLU"):
    """Base class of all layers.

    A subclass stores its arguments as attributes of the same names, creates weights in `build` and
    computes with ops in `call`. Defining the class registers its name.

    It may be written as in Keras: `call(self, x, training=False)` computes with weights and layers
    that are attributes, and `build` gets the shape including the batch, such as `(None, 4)`. If
    `call` takes a context instead, shapes in `build` exclude the batch, inner layers are adopted in
    `__init__`, and inner layers and weights are used with the context. A layer with several inputs
    takes them after x or the context, or, with `takes_many`, as a list in place of x.

    Args:
        name: Name of the layer, printable and without `/`. `None` derives it from the class.
            Default: `None`.
        trainable: Whether an optimizer may change the weights. Default: `True`.
        input_shape: Shape of one example, for the first layer of a `Sequential` without an `Input`.
            Default: `None`.
        **more: `dtype`, the policy of this layer and its inner layers, such as "float32" in a model
            with mixed precision; `activity_regularizer`; and a regularizer and a constraint for
            each initializer, such as `kernel_regularizer` and `kernel_constraint`.

    Examples:
        >>> from ztorch.layers import Input, Layer
        >>> class Scale(Layer):
        ...     def build(self, input_shape):
        ...         self.factor = self.add_weight(shape=input_shape[-1:], initializer="ones")
        ...     def call(self, x, training=False):
        ...         return x * self.factor
        >>> layer = Scale(name="s")
        >>> layer(Input((4,))).shape, [w.path for w in layer.weights]
        ((None, 4), ['s/factor'])
    """

    needs_floats = False  # whether integers are an error
    default_training: bool | None = None  # the mode where no caller and no program has one
    mixes_open_axes = ""  # why rows of an open axis may not be padded to a larger size

    def __init__(self, *, name: str | None = None, trainable: bool = True,
                 input_shape: Any = None, **more: Any):
        self.take_rules(more)
        self.take_policy(more)
        self.refuse(more)
        self.given_name = None if name is None else checked_name(name, type(self).__name__)
        self.name = self.given_name or snake_case(type(self).__name__)
        self.trainable = trainable
        self.input_shape = None if input_shape is None else checked_shape(
            f"{type(self).__name__}(input_shape=...)", input_shape)
        self.own_weights: list[Weight] = []  # without those of inner layers
        self.first_weights: list[Weight] | None = None  # those created in `__init__`
        self.adopted: list[Layer] = []  # inner layers
        self.calls = []
        self.adopter: Layer | None = None  # the model or layer that adopted this one
        self.built = False
        self.serial = next(_serial)  # numbers layers without a name

    def __init_subclass__(cls, **more: Any) -> None:
        if "call" in vars(cls):
            cls.is_plain = is_plain(cls.call)
            if cls.is_plain:
                cls.default_training = default_training(cls.call)
                cls.call = with_context(cls.call)  # type: ignore[method-assign]
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            cls.__init__ = with_initializers_checked(cls.__init__)  # type: ignore[method-assign]

    def build(self, input_shape: Shape) -> None:
        """Creates the weights for inputs of this shape, without the batch. Called once."""

    def call(self, x: Value, context: Context) -> Value:
        """The output for x, a tensor whose axis 0 is the batch."""
        raise without_call(type(self))

    def __call__(self, *inputs: Any, context: Context | None = None, **keywords: Any) -> Any:
        """Computes the output for numbers, traces the layer, or declares a part of a Model.

        Args:
            *inputs: Tensors or arrays; graph values; or symbolic tensors, such as an Input. The
                last one may be the context of a trace.
            context: Context of the trace. `None` makes a new one. Default: `None`.
            **keywords: Other arguments of `call`; `mask`, in place of the one that travels with the
                input; `training`, the mode, in place of that of the traced function. Outside of a
                program it is the default of `call`'s own; layers that augment images do so then.

        Returns:
            The result of `call`.

        Raises:
            ShapeError: The layer does not accept these arguments; the message names the layer.
        """
        if (again := dispatch.call_again(self, inputs, keywords, context)) is not None:
            return again
        if inputs and isinstance(inputs[-1], Context):
            *inputs, context = inputs  # type: ignore[assignment]
        named = next((n for n in ("inputs", "query") if n in keywords), "") if not inputs else ""
        inputs = tuple(map(tensors_of, [keywords.pop(named)] if named else inputs))
        inside = bool(current_layer()) or tracing.get() is not None  # the call of another layer
        symbolic = context is None and bool(symbols((inputs, keywords)))
        if context is None and not symbolic and has_numbers((inputs, keywords), not inside):
            if tracing.get() is None:
                return dispatch.call_layer(self, inputs, **keywords)
            inputs = tuple(nested(in_graph, x) for x in inputs)  # weights must not be constants
            keywords = {name: nested(in_graph, x) for name, x in keywords.items()}
        passed = context is not None
        if not passed and not symbolic:
            context = cast("Context | None", tracing.get())
        default = None if "training" in keywords else self.default_training
        training = keywords.pop("training", None)
        with layer_scope(self.path or self.name):
            check_call(self, inputs, self.without_mask(keywords), None if symbolic else context)
        if symbolic:
            return declare(self, inputs, keywords if training is None else
                           {**keywords, "training": training})
        if inside:
            need_adopted(self, context, passed)
        context = context if context is not None else Context()
        with layer_scope(self.path or self.name), context.calling(training, default):
            if self.needs_floats:
                need_floats(self, inputs[0])
            if "input_spec" in vars(self):
                check_inputs(self, inputs[0])
            self.prepare(*inputs, **keywords)
            y = self.called_masked(*inputs, context=context, **keywords)
            if "activity_regularizer" in self.rules:
                self.add_activity_losses(y, context)
        context.results[self] = y
        if isinstance(y, Value):
            context.remember(self, [v for v in leaves(inputs) if isinstance(v, Value)], y)
        return y

    def add_weight(self, name: str | Shape | None = None, shape: Any = (),
                   initializer: Any = "glorot_uniform", trainable: bool = True,
                   regularizer: Any = None, constraint: Any = None, dtype: Any = None) -> Weight:
        """Creates a weight of this layer. Weights are ordered by these calls.

        Args:
            name: Name of the weight within the layer, such as `"kernel"`. `None` means that of the
                attribute that holds it. As in Keras it may be omitted: `add_weight((3, 4),
                "zeros")`. Default: `None`.
            shape: Shape of the weight. Default: `()`.
            initializer: Initializer of its values: a name or an `Initializer`. Default:
                `"glorot_uniform"`.
            trainable: Whether an optimizer may change it. Default: `True`.
            regularizer: Its penalty in the loss. Default: `None`.
            constraint: The constraint applied after each training step. Default: `None`.
            dtype: A dtype of floats. Weights have the dtype of the model. Default: `None`.

        Returns:
            The weight. `context.read(weight)` returns its tensor in `call`.

        Raises:
            ConfigError: The layer already has a weight with this name.
        """
        has_own_name = isinstance(name, str)
        name, shape, initializer, names = weight_arguments(self, name, shape, initializer, dtype)
        if name in names:
            raise ConfigError(f"layer {self.path!r} has two weights named {name!r}")
        for n in shape:
            if isinstance(n, OpenSize):
                raise shape_error(f"{type(self).__name__} creates weight {name!r} as long as axis "
                                  f"{n}, whose size varies:", tuple(shape),
                                  fix="give the layer a fixed size, such as "
                                      "PositionEmbedding(sequence_length=512), or give the Input "
                                      "one")
        weight = Weight(self, name, shape, Initializer.get(initializer), trainable)
        weight.has_own_name = has_own_name
        self.set_rules(weight, regularizer, constraint)
        self.own_weights.append(weight)
        return weight

    # -- layers in layers --------------------------------------------------------------------------

    def adopt(self, spec: Any, reserved: Collection[str] = (), attribute: str = "") -> Layer:
        """Makes a layer part of this one. Its weights then belong to this layer as well.

        A layer without a name is named after its class and numbered among its siblings.

        Args:
            spec: A layer, or its config.
            reserved: Names that automatic names must avoid.
            attribute: The attribute that holds the layer. It tells layers of the same name apart.

        Raises:
            ConfigError: It is not a layer, is already part of this one, or its name is taken.
        """
        kind = "layer" if self.path else "model"
        owner = f"{kind} {self.name!r}"
        layer = Layer.get(spec) if isinstance(spec, dict) else spec
        if isinstance(layer, HostLayer):
            layer = Layer.known["Encoded"](layer)
        if not isinstance(layer, Layer):
            description = f"the class {layer.__name__}" if isinstance(layer, type) else repr(layer)
            raise ConfigError(f"{owner} takes layers, not {description}; write Dense(10), not "
                              "Dense or 10, and Sequential([...]) for several layers in a row")
        if any(layer is other for _, other in self.walk()):
            raise ConfigError(f"layer {layer.name!r} is in {owner} twice; create a second layer")
        if any(self is other for _, other in layer.walk()):
            raise ConfigError(f"{owner} cannot contain itself; create a second one")
        need_shallow(self, layer, 1 + max(depth for depth, _ in layer.walk()))
        names = {other.name_in_path or other.name for other in self.adopted}
        if layer.name in names and layer.keeps_name:
            if not attribute:
                raise ConfigError(f"{owner} has two layers named {layer.name!r}; set name= of one")
            if layer.adopter is None:
                layer.name_in_path = unused(attribute, names)
        if not layer.keeps_name:
            layer.name = unused(layer.name, {*names, *reserved})
        if layer.adopter is None:  # a shared layer keeps its path in its first model
            layer.adopter = self
        self.adopted.append(layer)
        return layer

    @property
    def stands_for(self) -> Layer:
        """The layer that files and summaries show instead; usually the layer itself."""
        return self

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Layer]]:
        """(depth, layer) for this layer and all layers inside it, in the order of weights."""
        yield depth, self
        for layer in self.adopted:
            yield from layer.walk(depth + 1) if layer.adopted else ((depth + 1, layer),)

    @property
    def weights(self) -> list[Weight]:
        """All weights in Keras' order: the layer's own, then those of inner layers."""
        return [*self.own_weights, *(w for layer in self.adopted for w in layer.weights)]

    def need_rank(self, shape: Shape, rank: int, axes: str, fix: str) -> None:
        """Raises a ShapeError unless inputs have this many axes besides the batch."""
        if len(shape) != rank:
            raise shape_error(f"{type(self).__name__} needs inputs of {rank} axes {axes} besides "
                              "the batch, not", shape, fix=fix)

    def get_config(self) -> dict[str, Any]:
        common = {"name", "trainable", "input_shape"}  # the Input of a model has the shape
        common |= {"dtype"} - {*vars(self)}
        arguments = {k: v for k, v in super().get_config().items() if k not in common}
        return {"name": self.name, **arguments, **self.policy_config(), **self.rules_config(),
                **({} if self.trainable else {"trainable": False})}

    def __setattr__(self, name: str, value: Any) -> None:
        if self.is_plain:
            need_free(self, name, value)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name in OF_FIRST_CALL and "calls" in vars(self):
            raise never_called(self, name)
        if name != "adopted" and "adopted" in vars(self):
            if made_with_model(self) and name in vars(self):
                return vars(self)[name]
            raise no_attribute(self, name)
        raise AttributeError(f"a {type(self).__name__} is not initialized yet: start its __init__ "
                             "with super().__init__(), or super().__init__(**common) for a name")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"
