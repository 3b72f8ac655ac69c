"""From a model to graphs: the functions of one program, and its knowledge of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ztorch.compile.traced_model import TracedModel
from ztorch.config import ascending, flag, positive, whole_seed
from ztorch.dtypes import DType, bf16, dtype, f16, f32, f64
from ztorch.errors import ConfigError, Unsupported, unknown
from ztorch.files.kinds import BadValue
from ztorch.graph.narrow import products_of
from ztorch.graph.value import Value
from ztorch.layers.axes import whole_axes
from ztorch.layers.context import Context, States
from ztorch.layers.naming import port
from ztorch.layers.network import Network
from ztorch.layers.own_policy import rounding_of
from ztorch.losses import TargetSpec
from ztorch.model.bucket_graphs import BucketGraphs, BucketTracer
from ztorch.model.declaration import declaration_of, texts_of
from ztorch.model.objectives import Objective, losses_of, objectives_of
from ztorch.model.open_axes import multiples_of, need_multiples, sizes_of
from ztorch.model.step_functions import PLAIN, StepData, own_functions
from ztorch.model.summary import layer_rows
from ztorch.optimizers import Optimizer
from ztorch.runtime.buckets import BATCH, Buckets, parse_open_axes
from ztorch.runtime.snapshot import IdRange, Metadata, NamedConfig, WeightRow
from ztorch.runtime.spec import RESULTS
from ztorch.terminal.work_line import at

# Mixed precision: names for `dtype` in compile, with the dtype of operands of matrix products.
MIXED = {f"mixed_{d.long}": d for d in (f16, bf16)}


def trace(model: Network, batch_size: int | Sequence[int], optimizer: Any = None, loss: Any = None,
          metrics: Any = (), dtype_: Any = "float32", seed: int | None = None,
          loss_weights: Any = None, decode: bool | int = False, sizes: Any = None,
          targets: Mapping[str, TargetSpec] | None = None,
          weighted: Mapping[str, int] | None = None,
          step_data: StepData = PLAIN) -> TracedModel:
    """The functions of a model for each bucket of sizes; arguments as those of `Model.compile`. All
    functions share the model's states. `targets` are those of a custom step that no loss
    describes; None: they are not known, and without a loss there is no such step. `weighted` are
    the axes of steps that weights have, by output, where an output has separate weights.
    `step_data` is the form of the data of custom steps."""
    open_sizes = sizes_of(model, sizes)
    single = {name: 1 for name, axis in open_sizes.items() if axis == (1,)}  # these never vary
    buckets = Buckets({BATCH: ascending("batch_size", batch_size), **{
        name: axis for name, axis in open_sizes.items() if name not in single}})
    computed, narrow = float_dtypes(dtype_)
    own = own_functions(model, loss, optimizer)
    own = own if loss is not None or targets is not None else own & {"predict"}
    loss_of = losses_of(model, loss, *((None, ()) if "train" in own else (optimizer, metrics)))
    decode = rows_at_once(decode)
    optimizer = None if optimizer is None else Optimizer.get(optimizer)
    model.build()
    multiples = multiples_of(model)
    need_multiples(model, multiples, open_sizes)
    # The first values exist twice for a moment: here, and in the program that is loaded.
    model.need_memory(4 + 2 * computed.bytes)
    rounding = rounding_of(model, computed, narrow)
    states = States(computed, rounding, optimizer is not None,
                    model.seed if seed is None else whole_seed(seed), root=model.path)

    at("trace")
    tracer = BucketTracer(
        model, buckets, single, states, optimizer,
        lambda outputs, fed: objectives_of(model, outputs, loss_of, metrics, loss_weights, fed),
        own, targets or {}, weighted or {}, step_data)
    longest = {name: axis[-1] for name, axis in open_sizes.items()}
    with products_of(rounding):
        first, *others = buckets
        largest = tracer.graphs(first)
        _need_one_batch_size(buckets, largest.context)
        functions = dict(largest.functions)
        if decode:
            from ztorch.model.generation import Generation  # most programs never generate

            functions |= Generation(model, states, decode, longest).functions()
        for bucket in others:
            smaller = tracer.graphs(bucket)
            _need_one_target(largest, smaller)
            functions |= {buckets.name(verb, bucket): graph
                          for verb, graph in smaller.functions.items() if verb != RESULTS}
    metadata = _metadata(tracer, largest, longest, multiples,
                         computed.long if narrow is None else f"mixed_{narrow.long}")
    return TracedModel(functions, _with_pipeline(model, metadata))


def _metadata(tracer: BucketTracer, largest: BucketGraphs, longest: Mapping[str, int],
              multiples: Mapping[str, int], dtype_name: str) -> Metadata:
    """The knowledge of a program about its model, from the graphs of the largest bucket."""
    model, buckets, states = tracer.model, tracer.buckets, tracer.states
    return Metadata(
        name=model.name,
        declaration=declaration_of(model, largest.outputs, largest.objectives, tracer.optimizer),
        batch_size=buckets.batch_size,
        axes=buckets.axes,
        dtype=dtype_name,
        seed=states.seed,
        open_axes=largest.open_axes,
        whole_axes=whole_axes(model),
        multiples={name: of for name, of in multiples.items() if name in buckets.axes},
        whole_batches=tuple(sorted(largest.whole_batches)),
        **_ports(model, largest.x, largest.outputs, largest.context),
        **_training(largest.outputs, largest.objectives),
        weights=tuple(WeightRow(name, w.shape, states.kept_as(w), w.trains, w.layer.name)
                      for name, w in model.named_weights().items()),
        layers=layer_rows(model, states.kept_as, longest),
    )


def _with_pipeline(model: Network, metadata: Metadata) -> Metadata:
    """The metadata of a program, with the pipeline of the model if it has one."""
    if model.pipeline is None:
        return metadata
    record = model.pipeline.record
    try:
        record.check_shapes(metadata.input_shape, metadata.output_shape)
    except BadValue as error:
        raise ConfigError(f"the pipeline of model {model.name!r} does not fit it: "
                          f"{error}") from None
    return metadata.replace(pipeline=record)


def rows_at_once(decode: Any) -> int:
    """The number of rows that a program generates at once: `decode` of compile; True means one.

    >>> rows_at_once(True), rows_at_once(4), rows_at_once(False)
    (1, 4, 0)
    """
    try:
        return positive("decode", decode)
    except ConfigError:
        pass
    try:
        return int(flag("decode", decode))
    except ConfigError:
        raise ConfigError("decode must be True, False, or the number of rows to generate at once, "
                          f"not {decode!r}") from None


def float_dtypes(name: Any) -> tuple[DType, DType | None]:
    """The meaning of `dtype` of compile: the dtype of computations and, in mixed precision, the
    dtype of operands of matrix products."""
    if isinstance(name, str) and name in MIXED:
        return f32, MIXED[name]
    if isinstance(name, str) and name.startswith("mixed"):
        raise unknown("dtype", name, (f32.long, f64.long, *MIXED))
    computed = dtype(name)
    if computed not in (f32, f64):
        mixed = next((m for m, d in MIXED.items() if d is computed), "")
        raise ConfigError(f"dtype={computed.long!r}: models compute in 'float32', 'float64'" + (
            f" or {mixed!r}, which rounds weights and operands of matrix products to "
            f"{computed.long}, and is float32 elsewhere" if mixed else ""))
    return computed, None


def _need_one_target(largest: BucketGraphs, smaller: BucketGraphs) -> None:
    """Raises an error if targets of one output differ in shape along axes that are not open."""
    for name in largest.objectives:
        shapes = [graphs.objectives[name].target.shape[1:] for graphs in (largest, smaller)]
        named = parse_open_axes(largest.open_axes.get(port("y", name), ""))
        for k, (n, m) in enumerate(zip(*shapes, strict=True)):
            if n != m and k not in named:
                raise Unsupported(f"output {name or 'y'!r} is trained on targets of shape "
                                  f"{shapes[0]} or {shapes[1]}, for different sizes of open axes, "
                                  f"but its axis {k + 1} is not an open axis; compile for one size")


def _need_one_batch_size(buckets: Buckets, context: Context) -> None:
    """Raises an error if a layer stores a state per row and batches differ in size."""
    sizes = buckets.axes[BATCH]
    if len(sizes) > 1 and context.keepers:
        layer = next(iter(context.keepers.values()))
        raise Unsupported(f"layer {layer.path!r} is stateful: it stores a state for each row of "
                          f"a batch, so batches have one size; compile with batch_size={sizes[-1]}")


# -- a program's knowledge of its model ------------------------------------------------------------


def _ports(model: Network, x: Mapping[str, Value], outputs: Mapping[str, Value],
           context: Context) -> dict[str, Any]:
    """Shapes and dtypes of inputs and outputs."""
    return {
        "input_shape": {name: v.shape[1:] for name, v in x.items()},
        "input_dtype": {name: v.dtype for name, v in x.items()},
        "input_range": {name: None if (limits := context.ranges.get(v)) is None else
                        IdRange(**limits._asdict()) for name, v in x.items()},
        "output_shape": {name: y.shape[1:] for name, y in outputs.items()},
        "outputs_are": model.outputs_are,
        "texts": texts_of(model),
    }


def _training(outputs: Mapping[str, Value], objectives: Mapping[str, Objective]) -> dict[str, Any]:
    """Targets and losses."""

    def each(value: Callable[[Objective], Any], without_loss: Any = None) -> dict[str, Any]:
        return {name: value(objectives[name]) if name in objectives else without_loss
                for name in outputs}

    return {
        "target_shape": each(lambda o: o.target.shape[1:]),
        "classes": each(lambda o: o.target.classes),
        "probabilities": each(lambda o: o.loss is not None and o.loss.probabilities, False),
        "loss": each(lambda o: o.loss and NamedConfig(o.loss.name, o.loss.get_config())),
    }
