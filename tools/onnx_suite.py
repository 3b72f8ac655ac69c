"""ONNX's own backend tests, which come with the package onnx: how many of them pass.

`python -m tools.onnx_suite` evaluates every case with NumPy and compiled for the CPU, and prints
how many pass. With `--write` the tables go into docs/onnx.md, and the cases that do not pass into
tests/interchange/onnx_exceptions.txt, which the tests compare with.
"""

from __future__ import annotations

import argparse
import collections
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
from ztorch.interchange.onnx.load import layer_of
from ztorch.interchange.onnx.node import NeedsNumbers
from ztorch.interchange.onnx.protobuf import package
from ztorch.layers.context import Context

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "onnx.md"
EXCEPTIONS = ROOT / "tests" / "interchange" / "onnx_exceptions.txt"
ROUNDING = "rounding"
MARKERS = "<!-- onnx suite -->", "<!-- end of onnx suite -->"
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
STEPS = 4  # of rounding, at the largest number of an output; the suite asks for fewer in 16 bits
RANDOM_OPS = {"Bernoulli", "RandomNormal", "RandomUniform", "RandomNormalLike",
              "RandomUniformLike", "Multinomial"}
OUTCOMES = {  # and what each says in the table
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
    """What became of a case."""

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
            feeds = {port.name: _codes(x, port.format) for port, x in zip(
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
            fault = _difference(case, [p.format for p in file.outputs], results, outputs)
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


def _codes(x: Any, number: int = 0) -> Any:
    """An input as an array that ztorch takes: codes for formats that NumPy lacks."""
    if x is None or isinstance(x, list):
        return x
    array = np.asarray(x)
    if array.dtype.name == "bfloat16":
        return array
    if array.dtype.name.startswith(("float8", "float4", "int4", "uint4", "int2", "uint2")):
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
    known = {v: a.astype(v.dtype.working) for v, a in zip(values, arrays, strict=True)}
    known.update((s, first_value(s)) for s in context.states.leaves.values())
    return [_stored_as(v, y) for v, y in zip(results, evaluate(results, known), strict=True)]


def _stored_as(v: Value, y: np.ndarray) -> np.ndarray:
    return to_storage(bf16, y) if v.dtype is bf16 else y


def _difference(case: SuiteCase, formats: Sequence[int], actual: Sequence[np.ndarray],
                expected: Sequence[Any]) -> str:
    """What is wrong with the outputs; empty where nothing is."""
    if len(actual) != len(expected):
        return f"{len(actual)} outputs, not {len(expected)}"
    for k, (y, right) in enumerate(zip(actual, expected, strict=True)):
        if not isinstance(right, np.ndarray | np.generic):
            return f"output {k} must be {type(right).__name__}"
        right = np.asarray(right)
        is_bf16 = right.dtype.name == "bfloat16"
        wanted = _codes(right)
        if y.shape != wanted.shape:
            return f"output {k} has shape {y.shape}, not {wanted.shape}"
        if y.dtype.name != wanted.dtype.name and not (is_bf16 and y.dtype == np.uint16):
            return f"output {k} has dtype {y.dtype}, not {wanted.dtype}"
        if case.is_random:
            continue
        if is_bf16:
            bits = y.view(np.uint16) if y.dtype != np.uint16 else y
            y = (bits.astype(np.uint32) << 16).view(np.float32)
            wanted = wanted.astype(np.float32)
        try:
            np.testing.assert_allclose(y, wanted, case.relative, case.absolute)
        except AssertionError as error:
            steps = _steps(_step(right), y, wanted)
            if steps <= STEPS:
                return f"{ROUNDING} of output {k}: {steps:.1f} steps of {right.dtype}"
            lines = [line for line in str(error).splitlines() if "Mismatch" in line or
                     "Max" in line or "nan" in line]
            return f"output {k}: {'; '.join(lines) or 'other numbers'}"
    return ""


def _steps(eps: float, y: np.ndarray, wanted: np.ndarray) -> float:
    """How many steps of rounding two arrays are apart, at the largest number."""
    finite = np.isfinite(wanted)
    if not eps or not finite.any() or not np.array_equal(finite, np.isfinite(y)) or (
            not np.array_equal(y[~finite], wanted[~finite], equal_nan=True)):
        return float("inf")
    y, wanted = y[finite].astype(np.float64), wanted[finite].astype(np.float64)
    return float(np.abs(y - wanted).max() / (eps * max(np.abs(wanted).max(), 1e-30)))


def _step(x: np.ndarray) -> float:
    """The step of a float dtype at 1; 0 for integers."""
    if x.dtype.name == "bfloat16":
        return 2.0 ** -7
    return float(np.finfo(x.dtype).eps) if x.dtype.kind == "f" else 0.0


def _short(error: Exception) -> str:
    """The message of an error without its first line's file, in one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    if "nodes cannot be imported" in lines[0] and len(lines) > 1:
        lines = lines[1:-1]  # the last line is advice
    return re.sub(r"^\S+: ", "", " ".join(lines))[:240] if lines else ""


# -- tables ----------------------------------------------------------------------------------------


Verdicts = Mapping[str, tuple[str, Verdict]]  # the kind and the verdict of each case, by name


def counted(verdicts: Verdicts) -> str:
    """How many cases of each kind have each outcome."""
    counts = collections.Counter((kind, v.outcome) for kind, v in verdicts.values())
    lines = ["| outcome | " + " | ".join(KINDS) + " | all | |",
             "| --- |" + " --- |" * (len(KINDS) + 2)]
    for outcome, meaning in OUTCOMES.items():
        row = [counts[kind, outcome] for kind in KINDS]
        lines.append(f"| {outcome} | " + " | ".join(map(str, (*row, sum(row))))
                     + f" | {meaning} |")
    return "\n".join(lines)


def reasons(verdicts: Verdicts) -> str:
    """Why the others do not pass, the most frequent reason first."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, (_, v) in verdicts.items():
        if v.outcome not in ("pass", "shape"):
            reason, _, _ = v.reason.partition(" of output")
            reason = re.sub(r"'[^']*' (has|is a) ", r"a tensor \1 ", reason)
            reason = re.sub(r"^test_\w+ has", "a file has", reason)
            reason = re.sub(r"^(\w+) '[^']*': ", r"\1: ", reason)
            alike.setdefault((v.outcome, reason.strip()), []).append(name.removeprefix("test_"))
    lines = ["| cases | outcome | reason | such as |", "| --- | --- | --- | --- |"]
    for (outcome, reason), names in sorted(alike.items(), key=lambda row: -len(row[1])):
        lines.append(f"| {len(names)} | {outcome} | {reason} | `{names[0]}` |")
    return "\n".join(lines)


def section(verdicts: Verdicts) -> str:
    """The part of docs/onnx.md about the suite."""
    fixed = sum(bool(v.fixed) for _, v in verdicts.values() if v.outcome == "pass")
    return f"""
{counted(verdicts)}

In {fixed} of the cases that pass, inputs that decide about shapes or positions are given as
constants while importing, as `load_layer(path, constants=...)` does. Those that do not pass:

{reasons(verdicts)}

"""


def exceptions() -> dict[str, tuple[str, str]]:
    """The cases that are known not to pass: outcome and reason by name."""
    rows = [line.split("\t") for line in EXCEPTIONS.read_text().splitlines()
            if line and not line.startswith("#")]
    return {name: (outcome, reason) for name, outcome, reason in rows}


def write(verdicts: Verdicts) -> None:
    """Writes the section and the list of exceptions."""
    rows = [f"{name}\t{v.outcome}\t{v.reason}" for name, (_, v) in sorted(verdicts.items())
            if v.outcome != "pass"]
    EXCEPTIONS.write_text("# Cases of ONNX's suite that do not pass, or pass by shape alone, with "
                          "the reason.\n# Written by python -m tools.onnx_suite --write.\n"
                          + "\n".join(rows) + "\n")
    before, _, rest = PAGE.read_text().partition(MARKERS[0])
    _, _, after = rest.partition(MARKERS[1])
    PAGE.write_text(before + MARKERS[0] + section(verdicts) + MARKERS[1] + after)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--numpy", action="store_true", help="evaluate with NumPy, compile nothing")
    parser.add_argument("--device", default="cpu", help="the device to compile for")
    parser.add_argument("--each", type=int, default=1, help="take one of so many cases")
    parser.add_argument("--only", default="", help="a regular expression that names contain")
    parser.add_argument("--write", action="store_true", help="write docs/onnx.md and exceptions")
    options = parser.parse_args(arguments)
    verdicts: dict[str, tuple[str, Verdict]] = {}
    for k, case in enumerate(cases()):
        if re.search(options.only, case.name) and k % options.each == 0:
            verdict = judge(case, device=None)
            if verdict.outcome in ("pass", "shape") and not options.numpy:
                verdict = judge(case, options.device)
            verdicts[case.name] = case.kind, verdict
            if verdict.outcome not in ("pass", "shape"):
                print(f"{case.name}\t{verdict.outcome}\t{verdict.reason}", flush=True)
    print(counted(verdicts))
    if options.write:
        write(verdicts)


if __name__ == "__main__":
    main()
