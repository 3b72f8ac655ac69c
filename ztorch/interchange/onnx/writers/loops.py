"""Writer of loops, as Scan nodes whose bodies are graphs inside them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ztorch.dtypes import f32
from ztorch.graph.body import Body, arguments
from ztorch.graph.hoisting import computed_ahead, with_products_first
from ztorch.graph.value import Value
from ztorch.interchange.onnx.protobuf import Port, Subgraph
from ztorch.interchange.onnx.selection import WriteSelector, primitive
from ztorch.interchange.onnx.writer import Writer
from ztorch.interchange.onnx.writing import write_values
from ztorch.layers.context import Context


@primitive("loop")
def _loop(w: Writer, v: Value) -> None:
    """A loop that may end early runs all its iterations: those after its end change nothing."""
    body: Body = v.attrs["body"]
    if computed_ahead(body):
        results = with_products_first(v)
        write_values(w, WriteSelector(Context(), {}, Counter()), results)
        w.loops[v] = [*map(w.name, results)]
        return
    inits, sequences, shared = arguments(body, v.args)
    inner = w.inside()
    around = {leaf: w.name(x) for leaf, x in zip(body.shared, shared, strict=True)}
    computed = [leaf for leaf, name in around.items() if name not in w.arrays]
    outer_states = computed if len(computed) > 1 else []  # OpenVINO lets a body read only one
    for leaf in (leaf for leaf in around if leaf not in outer_states):
        inner.record(leaf, around[leaf])
    names = [*map(w.name, inits), *(around[leaf] for leaf in outer_states), *map(w.name, sequences)]
    ports = [_port(inner, leaf, "element" if leaf in body.slices else "before")
             for leaf in (*body.carries, *outer_states, *body.slices)]
    for leaf, port in zip((*body.carries, *outer_states, *body.slices), ports, strict=True):
        inner.record(leaf, port.name)
    if not sequences:  # a Scan takes its number of iterations from a sequence
        names.append(w.array(np.zeros(body.trip_count, np.float32)))
        ports.append(Port(inner.unique("iteration"), (), f32))
    write_values(inner, WriteSelector(Context(), {}, Counter()), list(body.roots))
    ends = []
    for root in (*body.news, *outer_states, *body.outs):  # each with a name of its own
        result = _port(inner, root, "after")
        inner.nodes.append(("Identity", result.name, [inner.name(root)], [result.name], {}))
        ends.append(result)
    reads, keeps = max(len(sequences), 1), len(body.outs)
    order = int(body.reverse)
    outputs = w.outputs(
        "Scan", names, len(ends), num_scan_inputs=reads,
        scan_input_directions=[order] * reads, scan_output_directions=[order] * keeps or None,
        body=Subgraph(w.unique("body"), ports, ends, inner.nodes))
    states = len(body.news)
    w.loops[v] = outputs[:states] + outputs[states + len(outer_states):]


def _port(w: Writer, v: Value, name: str) -> Port:
    return Port(w.unique(f"{w.layer}/{name}" if w.layer else name), w.dims(v.shape), v.dtype)


@primitive("result")
def _result(w: Writer, v: Value) -> None:
    w.record(v, w.loops[v.args[0]][v.attrs["index"]])
