"""The functions with which a program generates: `prefill` and `generate`; for `beams` see beams.py.

Rows are independent. `prefill` reads all numbers of some rows at once and fills the caches of
layers. `generate` is a loop that runs one position of each row per iteration, draws its next
number, and continues with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ztorch.dtypes import dtype
from ztorch.errors import Unsupported
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value
from ztorch.layers.context import Context, States
from ztorch.layers.decoding import Decoding, Prefill
from ztorch.layers.network import Network
from ztorch.layers.stepwise import need_stepwise
from ztorch.model.beams import beams_graph
from ztorch.model.sampling import SamplingInputs, drawn
from ztorch.model.turns import NOTHING, TURNS, Carried, goes_on, loop, written


class Generation:
    """Builds the functions with which a model generates.

    Args:
        model: A causal model of one input `(length,)` of integers.
        states: The states of the program.
        rows: Number of rows that are generated at once.
        sizes: The largest size of each open axis.
    """

    def __init__(self, model: Network, states: States, rows: int, sizes: Mapping[str, int]):
        need_stepwise(model)
        if list(model.inputs_by_name) != [""] or model.output_names != [""]:
            raise self._unsupported(model, "has several inputs or outputs")
        self.dtype = dtype(model.input_dtype or states.dtype)
        shape, row = model.inputs_by_name[""].row_shape, model.output_rows()[""]
        if len(shape) != 1 or not self.dtype.is_int:
            raise self._unsupported(model, f"takes {shape} of {self.dtype}")
        self.model, self.states, self.rows = model, states, rows
        varies = model.open_axes.get("", {}).get(0)  # the axis of the length, if it is open
        self.length = sizes[varies] if varies else shape[0]
        self.turns = min(TURNS, self.length)
        if len(row) != 2 or not (varies or row[0] == self.length):
            raise self._unsupported(model, f"gives {row}")
        self.classes = row[1]  # how many numbers the model distinguishes
        self.prefill = self._prefill()
        self.caches = {name: state for name, state in states.leaves.items()
                       if state.attrs.get("kind") == "cache"}

    def functions(self) -> dict[str, Graph]:
        """The graphs by name. A model without caches needs no prefill."""
        functions = {"prefill": self.prefill} if self.prefill.updates else {}
        functions["generate"] = self._generate()
        if self.rows > 1:
            functions["beams"] = beams_graph(self)
        return functions

    def _unsupported(self, model: Network, reason: str) -> Unsupported:
        return Unsupported("decode=True needs a model with one integer input, (length,), "
                           f"that returns logits, (length, classes); model {model.name!r} {reason}")

    def _prefill(self) -> Graph:
        """Whole rows and their lengths -> the state in which `generate` continues, at the last
        number of each. Fills the caches; rows of length 0 stay unchanged."""
        x = leaf("input", "x", (self.rows, self.length), self.dtype)
        length = leaf("input", "length", (self.rows,), "int32")
        position = OPS.maximum(length - 1, 0)
        context = Context(states=self.states, prefill=Prefill(length > 0, position, self.length))
        self.model.called({"": x}, context)
        return Graph({"position": position},
                     {state.attrs["name"]: new for state, new in context.updates.items()})

    def _generate(self) -> Graph:
        """The last number of each row, its position, sampling options -> the numbers that follow,
        and the positions after them."""
        rows = self.rows
        token = leaf("input", "x", (rows,), self.dtype)
        position = leaf("input", "position", (rows,), "int32")
        live = leaf("input", "live", (rows,), "bool")
        step = leaf("input", "step", (1,), "uint32")
        count = leaf("input", "count", (1,), "int32")
        choices = SamplingInputs(leaf("input", "seeds", (2, rows), "uint32"),
                                 *(leaf("input", name, (1,), dtype) for name, dtype in (
                              ("temperature", "float32"), ("top_k", "int32"),
                              ("top_p", "float32"), ("repetition_penalty", "float32"))))
        classes = self.classes
        seen = leaf("input", "seen", (rows, classes), "bool")
        stops = leaf("input", "stops", (classes,), "bool")

        def turn(now: Carried) -> Carried:
            active = OPS.logical_and(now["live"], now["go"])
            logits, caches = self.logits(now, active)
            token = drawn(logits, now["seen"], OPS.reshape(now["step"], ()), choices)
            new = OPS.logical_and(OPS.equal(OPS.iota((1, classes), 1), OPS.reshape(token, (-1, 1))),
                                  OPS.reshape(active, (-1, 1)))
            live = OPS.logical_and(now["live"], OPS.logical_not(
                OPS.logical_and(active, OPS.take(stops, token, 0))))
            made = now["made"] + 1
            return {**caches, "token": OPS.where(active, OPS.cast(token, self.dtype), now["token"]),
                    "position": OPS.where(active, now["position"] + 1, now["position"]),
                    "live": live, "seen": OPS.logical_or(now["seen"], new),
                    "tokens": written(token, now["made"], now["tokens"], active),
                    "step": now["step"] + 1, "made": made,
                    "go": goes_on(now["go"], made, count, live)}

        made = OPS.full((1,), 0, "int32")
        first = {**self.caches, "token": token, "position": position, "live": live, "seen": seen,
                 "tokens": OPS.full((rows, self.turns), NOTHING, "int32"), "step": step,
                 "made": made, "go": goes_on(None, made, count, live)}
        last = loop(self.turns, first, turn)
        # The positions are used here so that they are an input even if no layer depends on them.
        return Graph({name: last[name] for name in ("tokens", "position")},
                     {name: last[name] for name in self.caches})

    def logits(self, now: Carried, active: Value) -> tuple[Value, Carried]:
        """The logits of the next number of each row, (rows, classes), and the new caches."""
        context = Context(states=self.states, decoding=Decoding(
            now["position"], active, self.length))
        context.updates.update({state: now[name] for name, state in self.caches.items()})
        x = OPS.reshape(now["token"], (self.rows, 1))
        y = self.model.called({"": x}, context)[""]
        activation, logits = context.probabilities.get(y, ("", y))
        logits = OPS.reshape(logits if activation == "softmax" else y, (self.rows, y.shape[2]))
        return logits, {name: context.updates[state] for name, state in self.caches.items()}
