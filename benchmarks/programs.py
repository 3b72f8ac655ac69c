"""Single ops and single kernels as compiled calls, without a model around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

import ztorch.ops  # noqa: F401 (fills OPS)
from ztorch.codegen.targets import Target
from ztorch.compile import pipeline
from ztorch.compile.cpu_code import cpu_code
from ztorch.compile.description import describe_program
from ztorch.compile.targeting import target_for
from ztorch.compile.watch import Watch
from ztorch.dtypes import dtype
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value
from ztorch.ir.kernel import Kernel
from ztorch.lower.locations import Location
from ztorch.lower.params import Params
from ztorch.lower.plan import KernelStep, Plan
from ztorch.runtime.devices import resolve
from ztorch.runtime.executable import Executable, HostCall

if TYPE_CHECKING:
    from ztorch.runtime.loaded_program import BoundCall

Arrays = Mapping[str, np.ndarray]


def input_like(name: str, array: np.ndarray) -> Value:
    """An input with the shape and dtype of an array."""
    return leaf("input", name, array.shape, dtype(array.dtype))


def weight(name: str, array: np.ndarray) -> Value:
    """A state that holds the array: the compiler may arrange it once, before any call."""
    return leaf("state", name, array.shape, dtype(array.dtype), array, kind="weight")


def call(y: Value, inputs: Arrays, threads: int, device: str = "cpu") -> BoundCall:
    """y compiled alone and bound, its inputs filled: `call()` computes it, outputs["y"] has it."""
    bound = pipeline.build({"predict": Graph({"y": y})}, device, "op", threads).bind("predict")
    fill(bound, inputs)
    return bound


def fill(bound: BoundCall, inputs: Arrays) -> None:
    for name, array in inputs.items():
        bound.inputs[name][...] = array
    bound()


def target() -> Target:
    """The meaning of "cpu" here."""
    return target_for(resolve("cpu"))


def kernel_call(kernel: Kernel, x: np.ndarray, y: tuple[int, ...], threads: int) -> HostCall:
    """A kernel of memories x (read) and y (written) as a call that all threads run."""
    source, result = input_like("x", x), leaf("input", "y", y, "float32")
    locations = Location("inputs", 0, source.nbytes), Location("outputs", 0, result.nbytes)
    step = KernelStep(kernel, locations, (False, True), cycles=1e12)  # enough to wake all workers
    plans = {"predict": Plan("predict", [source], [("y", result)], [step], 0, [])}
    t = target()
    params = Params(t.limits)
    spec = describe_program(kernel.name, t, plans, params)
    code = cpu_code(plans, t, spec, Watch()).code
    bound = Executable(spec, code, None, threads).bind("predict")
    fill(bound, {"x": x})
    return bound
