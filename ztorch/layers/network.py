"""Network: a graph of layers, as a layer. It is the part of a Model that needs no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.config import whole, whole_seed
from ztorch.dtypes import DType, f32
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.op import leaf, shape_error
from ztorch.graph.value import Value
from ztorch.host import processor
from ztorch.layers import wiring
from ztorch.layers.axes import OpenSize, named_axes, traced_with_open_axes
from ztorch.layers.called import ModelTensors
from ztorch.layers.calling import model_without_call
from ztorch.layers.context import Context, States
from ztorch.layers.core import Input
from ztorch.layers.layer import Layer
from ztorch.layers.model_copies import CopiedModel
from ztorch.layers.naming import port
from ztorch.layers.open_models import begin_padding
from ztorch.layers.own_call import OwnCall
from ztorch.layers.paths import need_distinct_names, need_short_names
from ztorch.layers.plain_calls import adopt_attributes
from ztorch.layers.real_positions import Padding
from ztorch.layers.symbol import leaves
from ztorch.layers.traced import Traced, traced_shapes
from ztorch.layers.weight import Weight


class Network(ModelTensors, CopiedModel, abstract=True):
    """A graph of layers: inputs, outputs, the layers between them, their shapes and weights."""

    takes_many = is_network = True

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.is_class = cls.call is not Network.call
        if cls.is_plain and "build" in vars(cls):  # as in Keras, it creates weights
            cls.make_weights = cls.build  # type: ignore[method-assign,assignment]
            del cls.build

    pipeline: Any = None  # a `zt.Pipeline`, the meaning of data and classes

    @checked
    def __init__(self, inputs: Any = None, outputs: Any = None, name: str | None = None,
                 seed: int | None = None, trainable: bool = True):
        self._begin(name, seed, trainable)
        self.wiring: wiring.Wiring | OwnCall
        if inputs is None and outputs is None and (self.is_class or self.own_functions):
            self.wiring = self.own_call = OwnCall(self.name)
            self.is_plain = self.is_plain or not self.is_class
            return
        if inputs is None or outputs is None:
            raise model_without_call(type(self))
        self.wiring = wiring.find_wiring(inputs, outputs, self.name)
        for layer in sorted(self.wiring.layers, key=lambda layer: layer.serial):
            self.adopt(layer, self.wiring.names)
        self.adopted = list(self.wiring.layers)

    def _begin(self, name: str | None, seed: int | None, trainable: bool) -> None:
        self._seed = None if seed is None else whole_seed(seed)
        self._traced: list[Traced] = []  # filled by build, for
        self._traced_of: list[Layer] = []  # these
        self._output: Any = None
        self.traced_sizes: dict[str, OpenSize] = {}  # sizes of open axes with which build traced it
        super().__init__(name=name, trainable=trainable)

    @property
    def own_functions(self) -> frozenset[str]:
        """The functions of its program that methods of its class define."""
        return frozenset()

    # -- layers ------------------------------------------------------------------------------------

    @property
    def layers(self) -> list[Layer]:
        """The layers in Keras' order, including the Inputs of a model of inputs and outputs."""
        adopt_attributes(self)
        graph = getattr(self, "wiring", None)
        return list(graph.layers_and_inputs if isinstance(graph, wiring.Wiring) else self.adopted)

    @property
    def path(self) -> str:
        """Empty unless the model is part of another one: weights are named within the model."""
        return super().path if self.adopter is not None else ""

    @property
    def model_seed(self) -> int:
        """The seed of initial weights: the model's own, or that of the enclosing model."""
        return super().model_seed if self._seed is None else self._seed

    @property
    def seed(self) -> int:
        """The seed of initial weights, dropout and shuffling."""
        return self.model_seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        self._seed = None if seed is None else whole_seed(seed)

    @checked
    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """The layer with that name or index."""
        layers = self.layers
        named = {layer.name: layer for layer in layers}
        if index is not None:
            if (at := whole("get_layer(index=...)", index, least=-(n := len(layers)))) < n:
                return layers[at]
            raise ConfigError(f"model {self.name!r} has {n} layers, none at index {index}")
        if isinstance(name, str) and name in named:
            return named[name]
        raise ConfigError(f"model {self.name!r} has no layer {name!r}; it has {', '.join(named)}")

    # -- inputs and outputs ------------------------------------------------------------------------

    @property
    def inputs_by_name(self) -> dict[str, Input]:
        """The Inputs by name; the name is empty if there is only one."""
        return self.wiring.inputs

    @property
    def output_names(self) -> list[str]:
        """The names of outputs; empty if there is only one."""
        if self.own_call is not None:
            self.build()
        return self.wiring.output_names

    @property
    def outputs_are(self) -> str:
        """The form of the outputs: "one" tensor, or a "list" or "dict" of tensors."""
        return self.wiring.outputs_are

    def named_outputs(self, outputs: Any) -> dict[str, Value]:
        """The outputs of a call by name."""
        if self.own_call is not None:
            return self.own_call.named_outputs(outputs)
        return dict(zip(self.output_names, leaves(outputs), strict=True))

    @property
    def open_axes(self) -> dict[str, dict[int, str]]:
        """The names of variable axes, by axis number, for each input that has some."""
        axes = {name: named_axes(x.row_shape, name) for name, x in self.inputs_by_name.items()}
        return {name: a for name, a in axes.items() if a}

    @property
    def axis_names(self) -> list[str]:
        """The names of all variable axes."""
        return list(dict.fromkeys(n for axes in self.open_axes.values() for n in axes.values()))

    def leaves(self, batch: int, d: DType = f32,
               sizes: Mapping[str, int] | None = None) -> dict[str, Value]:
        """Input leaves by name, of dtype d by default; `sizes` are those of open axes."""
        shapes = {name: x.row_shape for name, x in self.inputs_by_name.items()}
        if sizes is not None:
            shapes |= {name: tuple(sizes[axes[k]] if k in axes else n for k, n in enumerate(
                shapes[name])) for name, axes in self.open_axes.items()}
        return {name: leaf("input", port("x", name), (batch, *shapes[name]), x.dtype or d)
                for name, x in self.inputs_by_name.items()}

    def called(self, x: Mapping[str, Value], context: Context) -> dict[str, Value]:
        """The outputs by name, for inputs by name."""
        begin_padding(self, x, context.padding)
        if self.own_call is not None:
            args = self.own_call.arguments(x)
            self.prepare_class(args)
            with context.calling(None):
                return self.named_outputs(self.call(args, context) if self.is_class else args)
        return self.named_outputs(self.call(x[""] if "" in x else dict(x), context))

    def call(self, x: Any, context: Context) -> Any:
        """The outputs for a batch, as graph values."""
        self.need_call("called")
        x = self._by_name(x)
        assert isinstance(self.wiring, wiring.Wiring)
        return self.wiring.run({declared.symbol: x[name] for name, declared in
                                self.inputs_by_name.items()}, context)

    def prepare(self, x: Any, *more: Any, **keywords: Any) -> None:
        """Raises a ShapeError unless inputs have their declared shapes."""
        if self.own_call is not None:
            self.prepare_class(x)
            return
        for name, v in self._by_name(x).items():
            if not self.inputs_by_name[name].takes(v.shape[1:]):
                label = f"input {name!r}" if name else "the input"
                raise shape_error(f"{label} has another shape than declared:",
                                  self.inputs_by_name[name].row_shape, v.shape[1:],
                                  fix="change its Input or the layers before it")

    def _by_name(self, x: Any) -> dict[str, Value]:
        names = list(self.inputs_by_name)
        if "" in names:
            if len(leaves(x)) != 1:
                raise shape_error(f"takes one tensor, not {len(leaves(x))}",
                                  fix="join them first, such as Concatenate()([a, b])")
            return {"": leaves(x)[0]}
        if isinstance(x, dict) and set(x) == set(names):
            return {name: x[name] for name in names}
        if isinstance(x, (list, tuple)) and len(x) == len(names):
            return dict(zip(names, x, strict=True))
        received = (f"those named {', '.join(map(str, x))}" if isinstance(x, dict) else
                    "one" if isinstance(x, Value) else str(len(x)))
        raise shape_error(f"it takes {len(names)} tensors ({', '.join(names)}), not {received}",
                          fix="pass a list in this order, or a dict with these names")

    # -- shapes and weights ------------------------------------------------------------------------

    def build(self, input_shape: Any = None) -> None:
        """Computes all shapes and creates the weights. It is called automatically when needed.

        Args:
            input_shape: For a class with its own `call`, the shape of its inputs including the
                batch, such as `(None, 4)`; a list or dict for several. Default: `None`.
        """
        if self.making_weights:
            return
        adopt_attributes(self)
        if self.own_call is not None and input_shape is not None:
            self._output, self._traced = self.own_call.traced_for(input_shape, self._trace)
        elif self._traced and self._traced_of == [layer for _, layer in self.walk()]:
            return
        else:
            self._output, self._traced = self._trace()
        self._traced_of = [layer for _, layer in self.walk()]
        called = [row.layer for row in self._traced]
        need_distinct_names(self, called)
        need_short_names(called, super().weights)

    def _trace(self) -> tuple[Any, list[Traced]]:
        self.traced_sizes, traced = traced_with_open_axes(self.axis_names, self._trace_of)
        return traced

    def _trace_of(self, sizes: Mapping[str, int], named: bool = True
                  ) -> tuple[tuple[Any, list[Traced]], bool]:
        """The shapes of outputs and all layers, for sizes of open axes; and whether no layer turns
        an open axis into an axis of size 1."""
        def traced(rows: int) -> tuple[Any, Context]:
            context = Context(states=States(data=False, root=self.path), padding=Padding(sizes))
            return self.called(self.leaves(rows, sizes=sizes), context), context

        try:
            outputs, context = traced(1)
        except ShapeError:  # rows that belong together, such as the nodes of a graph
            self.rows_together = self.declared_batch_size or (self.own_call and self.own_call.rows)
            if not self.rows_together or self.rows_together == 1:
                raise
            outputs, context = traced(self.rows_together)
        return (traced_shapes(outputs, context, self.walk(-1), named), not context.padding.single)

    def traced_layers(self, sizes: Mapping[str, int] | None = None) -> list[Traced]:
        """All layers, including inner ones, in the trace of one example of these sizes."""
        self.build()
        return self._trace_of(sizes, named=False)[0][1] if sizes else self._traced

    @property
    def input_shape(self) -> Any:
        """The shape of the input including the batch; a dict by name for several."""
        self.build()
        shapes = {name: x.shape for name, x in self.inputs_by_name.items()}
        return shapes.get("", shapes)

    @input_shape.setter
    def input_shape(self, shape: Any) -> None:
        """Ignored: the Inputs of a model define its shape. The base class sets None."""

    def output_rows(self) -> dict[str, Any]:
        """The shapes of one prediction, by output."""
        self.build()
        return dict(self._output)

    @property
    def weights(self) -> list[Weight]:
        """All weights, in Keras' order; a part of a model may have none until it is called."""
        if self.knows_inputs or self.adopter is None:
            self.build()
        return super().weights

    def named_weights(self) -> dict[str, Weight]:
        """All weights, by their name in files of this model, such as `dense/kernel`."""
        states = States(root=self.path)
        return {states.name(w): w for w in self.weights}

    def need_memory(self, bytes_each: int) -> None:
        """Raises an error if this machine lacks memory for so many bytes per parameter."""
        n = self.count_params()
        processor.need_memory(f"model {self.name!r} with {n:,} parameters", n * bytes_each,
                              "make layers smaller; summary() shows which are large")

    def get_weights(self) -> list[np.ndarray]:
        """Copies of all weights, in Keras' order."""
        self.need_memory(8)
        return [w.numpy() for w in self.weights]
