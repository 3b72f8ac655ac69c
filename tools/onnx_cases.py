"""ONNX's own backend tests, from the package onnx: the cases, and the outcome of each."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ztorch as zt
from ztorch.dtypes import bf16, to_storage
from ztorch.errors import Unsupported, ZtorchError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import first_value, leaf
from ztorch.graph.value import Value
from ztorch.interchange.onnx.file import contents_of
from ztorch.interchange.onnx.graph import OnnxGraph, plain
from ztorch.interchange.onnx.load_layer import layer_of
from ztorch.interchange.onnx.node import NeedsNumbers
from ztorch.interchange.onnx.protobuf import package
from ztorch.layers.context import Context

ROUNDING = "rounding"
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
STEPS = 4  # of rounding, at the largest number of an output; the suite asks for fewer in 16 bits
RANDOM_OPS = {"Bernoulli", "RandomNormal", "RandomUniform", "RandomNormalLike",
              "RandomUniformLike", "Multinomial"}
OUTCOMES = {  # with their descriptions in the table
    "pass": "equal within the tolerance of the case",
    "shape": "random numbers: their shape and dtype are right",
    "Unsupported": "refused by name, as out of reach",
    "refused": "refused by another error",
    "rounding": f"no further apart than {STEPS} steps of the dtype at its largest number",
    "wrong": "other numbers, shapes or dtypes",
    "raw": "an exception that is none of ztorch's",
}


@dataclass(frozen=True)
class SuiteCase:
    """A model with inputs and the outputs that they must give."""

    name: str
    kind: str
    model: Any
    data: Sequence[tuple[Sequence[Any], Sequence[Any]]]  # (inputs, outputs), often once
    relative: float
    absolute: float

    @property
    def is_random(self) -> bool:
        """Whether its outputs are random numbers, which no other implementation draws."""
        nodes = self.model.graph.node
        training = any(n.op_type == "Dropout" and "training_dropout" in self.name and
                       "zero_ratio" not in self.name for n in nodes)
        return training or any(n.op_type in RANDOM_OPS for n in nodes) or (
            "bernoulli" in self.name)


@dataclass(frozen=True)
class Verdict:
    """The outcome of a case."""

    outcome: str  # a key of OUTCOMES
    reason: str = ""
    fixed: tuple[str, ...] = ()  # inputs whose numbers had to be known while importing


def cases(kinds: Iterable[str] = KINDS) -> Iterator[SuiteCase]:
    """Every case of the suite, in its order."""
    onnx = package()
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        for kind in kinds:
            for case in load_model_tests(kind=kind):
                folder = Path(case.model_dir or "")
                model = case.model or onnx.load(folder / "model.onnx")
                data = [([_array(onnx, x) for x in inputs], [_array(onnx, y) for y in outputs])
                        for inputs, outputs in case.data_sets or _stored(onnx, folder, model)]
                yield SuiteCase(case.name, kind, model, data, case.rtol, case.atol)


def _array(onnx: Any, x: Any) -> Any:
    return onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def _stored(onnx: Any, folder: Path, model: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """The data sets in a folder."""
    for part in sorted(folder.glob("test_data_set_*")):
        def read(role: str, ports: Any, part: Path = part) -> list[Any]:
            tensors = []
            for k in range(len(ports)):
                tensor = onnx.TensorProto.FromString((part / f"{role}_{k}.pb").read_bytes())
                tensors.append(onnx.numpy_helper.to_array(tensor))
            return tensors

        count = len([*part.glob("input_*.pb")])
        yield read("input", model.graph.input[:count]), read("output", model.graph.output)


def judge(case: SuiteCase, device: str | None = "cpu") -> Verdict:
    """Imports a case, computes its outputs and compares them; without a device, with NumPy."""
    fixed: dict[str, Any] = {}
    try:
        file = contents_of(case.model, case.name, Path())
        for inputs, outputs in case.data:
            feeds = {port.name: _codes(x) for port, x in zip(
                file.inputs, inputs, strict=False)}
            fixed.update((name, None) for name, x in feeds.items() if x is None)
            while True:
                try:
                    results = _computed(layer_of(file, fixed), feeds, device)
                    break
                except NeedsNumbers as error:
                    more = {n: feeds[n] for n in error.inputs if n in feeds and n not in fixed}
                    if not more:
                        raise
                    fixed.update(more)
            fault = _difference(case, results, outputs)
            if fault:
                return Verdict("rounding" if fault.startswith(ROUNDING) else "wrong", fault,
                               (*fixed,))
    except Unsupported as error:
        return Verdict("Unsupported", _short(error), (*fixed,))
    except ZtorchError as error:
        return Verdict("refused", f"{type(error).__name__}: {_short(error)}", (*fixed,))
    except Exception as error:
        return Verdict("raw", f"{type(error).__name__}: {_short(error)}", (*fixed,))
    return Verdict("shape" if case.is_random else "pass", "", (*fixed,))


def _codes(x: Any) -> Any:
    """An input as an array that ztorch takes: codes for formats that NumPy lacks."""
    if x is None or isinstance(x, list):
        return x
    array = np.asarray(x)
    if array.dtype.name == "bfloat16":
        return array
    if array.dtype.name.startswith(("float8", "float6_", "float4", "int4", "uint4", "int2",
                                    "uint2")):
        return (array.view(np.uint8) if "float" in array.dtype.name else
                array.astype(np.uint8 if array.dtype.name[0] == "u" else np.int8))
    return array


def _computed(layer: OnnxGraph, feeds: Mapping[str, Any],
              device: str | None) -> list[np.ndarray]:
    ports = layer.file.inputs
    arrays: list[Any] = [feeds.get(port.name) for port in ports]
    for port, array in zip(ports, arrays, strict=True):
        if not isinstance(array, np.ndarray):
            raise Unsupported(f"input {port.name!r} is {type(array).__name__}, not a tensor")
    values = [leaf("input", p.name, a.shape, p.dtype) for p, a in zip(ports, arrays, strict=True)]
    context = Context()
    results = layer.run(values, context)
    if device and ports:
        outputs = layer([zt.tensor(a, device=device) for a in arrays])
        by_name = outputs if isinstance(outputs, dict) else {plain(layer.outputs[0]): outputs}
        return [np.asarray(by_name[plain(name)]) for name in layer.outputs]
    leaves = {v: a.astype(v.dtype.working) for v, a in zip(values, arrays, strict=True)}
    leaves.update((s, first_value(s)) for s in context.states.leaves.values())
    return [_stored_as(v, y) for v, y in zip(results, evaluate(results, leaves), strict=True)]


def _stored_as(v: Value, y: np.ndarray) -> np.ndarray:
    return to_storage(bf16, y) if v.dtype is bf16 else y


def _difference(case: SuiteCase, actual: Sequence[np.ndarray], expected: Sequence[Any]) -> str:
    """The faults of the outputs; empty where there are none."""
    if len(actual) != len(expected):
        return f"{len(actual)} outputs, not {len(expected)}"
    for k, (y, right) in enumerate(zip(actual, expected, strict=True)):
        if not isinstance(right, np.ndarray | np.generic):
            return f"output {k} must be {type(right).__name__}"
        right = np.asarray(right)
        is_bf16 = right.dtype.name == "bfloat16"
        codes = _codes(right)
        if y.shape != codes.shape:
            return f"output {k} has shape {y.shape}, not {codes.shape}"
        if y.dtype.name != codes.dtype.name and not (is_bf16 and y.dtype == np.uint16):
            return f"output {k} has dtype {y.dtype}, not {codes.dtype}"
        if case.is_random:
            continue
        if is_bf16:
            bits = y.view(np.uint16) if y.dtype != np.uint16 else y
            y = (bits.astype(np.uint32) << 16).view(np.float32)
            codes = codes.astype(np.float32)
        try:
            np.testing.assert_allclose(y, codes, case.relative, case.absolute)
        except AssertionError as error:
            steps = _steps(_step(right), y, codes)
            if steps <= STEPS:
                return f"{ROUNDING} of output {k}: {steps:.1f} steps of {right.dtype}"
            lines = [line for line in str(error).splitlines() if "Mismatch" in line or
                     "Max" in line or "nan" in line]
            return f"output {k}: {'; '.join(lines) or 'other numbers'}"
    return ""


def _steps(eps: float, y: np.ndarray, expected: np.ndarray) -> float:
    """How many steps of rounding two arrays are apart, at the largest number."""
    finite = np.isfinite(expected)
    if not eps or not finite.any() or not np.array_equal(finite, np.isfinite(y)) or (
            not np.array_equal(y[~finite], expected[~finite], equal_nan=True)):
        return float("inf")
    y, expected = y[finite].astype(np.float64), expected[finite].astype(np.float64)
    return float(np.abs(y - expected).max() / (eps * max(np.abs(expected).max(), 1e-30)))


def _step(x: np.ndarray) -> float:
    """The step of a float dtype at 1; 0 for integers."""
    if x.dtype.name == "bfloat16":
        return 2.0 ** -7
    is_plain = x.dtype.name in ("float16", "float32", "float64")  # float8 and the like are codes
    return float(np.finfo(x.dtype).eps) if is_plain else 0.0


def _short(error: Exception) -> str:
    """The message of an error without its first line's file, in one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    if "nodes cannot be imported" in lines[0] and len(lines) > 1:
        lines = lines[1:-1]  # the last line is advice
    return re.sub(r"^\S+: ", "", " ".join(lines))[:240] if lines else ""
