"""The description of a compiled program for the runtime."""

from __future__ import annotations

from collections.abc import Mapping

from ztorch.codegen.targets import Target
from ztorch.lower.params import Params
from ztorch.lower.plan import Plan
from ztorch.runtime.spec import FunctionSpec, ProgramSpec, StateSpec, TensorSpec, entry_point
from ztorch.runtime.state_order import StateOrder


def describe_program(name: str, target: Target, plans: Mapping[str, Plan],
                     params: Params) -> ProgramSpec:
    """The functions, states, constants and memory of a program. Artifacts store it as JSON."""
    arena_bytes = max(plan.arena for plan in plans.values())
    kernel_names = dict.fromkeys(step.kernel.name for plan in plans.values() for step in plan.steps)
    states = {state: StateSpec(state, v.shape, v.dtype, params.offsets[state],
                               v.attrs.get("kind", "weight"), bool(v.attrs.get("trainable", False)),
                               StateOrder(*order) if (order := params.orders.get(state)) else None)
              for state, v in params.states.items()}
    on_device = target.limits.grid is not None
    return ProgramSpec(
        name, target.name, target.arch or target.chip, target.required_features,
        {plan.name: _describe_function(plan, params.size, arena_bytes, on_device)
         for plan in plans.values()},
        states, params.size, arena_bytes,
        tuple((offset, data.nbytes) for offset, data in params.constants),
        tuple(kernel_names), target.backend)


def _describe_function(plan: Plan, params_bytes: int, arena_bytes: int,
                       on_device: bool) -> FunctionSpec:
    inputs = [TensorSpec(v.attrs["name"], v.shape, v.dtype) for v in plan.inputs]
    outputs = [TensorSpec(name, v.shape, v.dtype) for name, v in plan.outputs]
    symbol = entry_point(plan.name, inputs, outputs, params_bytes, arena_bytes)
    return FunctionSpec(
        plan.name, symbol, {t.name: t for t in inputs}, {t.name: t for t in outputs}, plan.cycles,
        tuple((step.kernel.name, step.cycles * count)
              for step, count in zip(plan.steps, plan.run_counts(), strict=True)),
        tuple((label, buffer.size, buffer.first, buffer.last, offset)
              for label, buffer, offset in plan.buffers),
        loops=tuple((loop.first, loop.end, loop.trip_count) for loop in plan.loops),
        moves=_moves(plan) if on_device else ())


def _moves(plan: Plan) -> tuple[tuple[int, int, int, int], ...]:
    """Accesses of launches that move with the iterations of loops."""
    return tuple((k, n, around[depth], stride) for k, step in enumerate(plan.steps)
                 for around in [[n for n, loop in enumerate(plan.loops)
                                 if loop.first <= k < loop.end]]
                 for n, place in enumerate(step.locations)
                 for depth, stride in enumerate(place.strides) if stride)
