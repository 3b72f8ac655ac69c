"""ONNX's own tests of one node, in every dtype and version of the standard that their op has.

`python -m tools.onnx_dtypes` writes each test anew for each version of its op from opset 13 on and
for each dtype that the standard allows one of its tensors, and compares the result with that of
onnx.reference. It ends with 1 where a result differs that `EXPLAINED` does not list.
`--device cpu` compiles them; `--each 4 --turn K` takes a part.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import multiprocessing
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tools.onnx_cases import SuiteCase, cases, judge
from ztorch.host.processor import usable_cores
from ztorch.interchange.onnx.formats import FORMATS, magnitudes
from ztorch.interchange.onnx.protobuf import package

FIRST = 13  # the oldest opset
TOLERANCES = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-9}
STEPS = 1e-5  # of all other dtypes
ALIKE = 2  # tests of one op with the same attributes that are tried in a dtype
FOREIGN = ("string", "complex", "seq", "optional")
NO_ZERO = ("Mod", "Div")  # a division by zero is defined for floats alone

EXPLAINED = {  # (op, dtype or version): why onnx.reference is not a measure there
    ("BatchNormalization", "13"): "the reference mixes in the statistics of the batch; the "
                                  "standard and ONNX Runtime do not",
    ("DeformConv", "double"): "the reference has positions in float32; with float64 there it is "
                              "equal within 2e-15",
    ("Erf", "double"): "the reference rounds to float32",
    ("Gelu", "double"): "the reference has constants in float32",
    ("GridSample", "integers"): "the reference rounds the shares of neighbors to integers; we "
                                "interpolate, and round the result",
    ("GroupNormalization", "double"): "the standard computes in float32, and we in float64",
    ("HardSwish", "double"): "the reference has 1/6 in float32",
    ("TfIdfVectorizer", "13"): "of texts, which stay Unsupported",
}


class VariantResult(NamedTuple):
    """The outcome of a test in one version and dtype."""

    op: str
    version: str
    dtype: str
    case: str
    outcome: str
    reason: str


RIGHT = ("pass", "shape", "rounding")


def variants(case: SuiteCase) -> Iterator[tuple[SuiteCase, str, str]]:
    """A test in other versions and dtypes, with its result: the case, its version, its dtype."""
    onnx = package()
    [node], graph = case.model.graph.node, case.model.graph
    own = next(o.version for o in case.model.opset_import if not o.domain)
    newest = onnx.defs.onnx_opset_version()
    begins = {onnx.defs.get_schema(node.op_type, v).since_version
              for v in range(FIRST, newest + 1) if onnx.defs.has(node.op_type, v)}
    for version in sorted({max(FIRST, v) for v in begins}):
        schema = onnx.defs.get_schema(node.op_type, version)
        if len(node.input) > schema.max_input or len(node.output) > schema.max_output or any(
                a.name not in schema.attributes for a in node.attribute):
            continue
        types = {p.name: p.type.tensor_type.elem_type for p in (*graph.input, *graph.output)}
        sort = {name: schemas[min(k, len(schemas) - 1)].type_str
                for names, schemas in ((node.input, schema.inputs), (node.output, schema.outputs))
                for k, name in enumerate(names) if name}
        bound = {sort[name]: types[name] for name in reversed(sort)}
        changes = [(c.type_param_str, text[len("tensor("):-1]) for c in schema.type_constraints
                   for text in c.allowed_type_strs
                   if c.type_param_str in bound and not any(word in text for word in FOREIGN)]
        for changed, dtype in [("", ""), *changes]:
            kinds = dict(bound)
            if changed:
                kinds[changed] = _number(onnx, dtype)
            if kinds != bound or (not changed and version != own):
                model = _retyped(onnx, case, version, {n: kinds[t] for n, t in sort.items()})
                if model is not None:
                    yield model, str(version), dtype


def _number(onnx: Any, dtype: str) -> int:
    names = {"float": "FLOAT", "double": "DOUBLE"}
    return int(getattr(onnx.TensorProto, names.get(dtype, dtype.upper())))


def _retyped(onnx: Any, case: SuiteCase, version: int,
             types: Mapping[str, int]) -> SuiteCase | None:
    """The case with tensors of these dtypes; None where that is not a valid model, or one that the
    reference cannot compute."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    del model.opset_import[:]
    model.opset_import.append(onnx.helper.make_opsetid("", version))
    [node] = model.graph.node
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.elem_type = types[port.name]
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype", "output_dtype", "output_datatype"):
            attribute.i = types[node.output[0]]
    inputs = [_converted(onnx, node, port.name, x, types)
              for port, x in zip(model.graph.input, case.data[0][0], strict=False)]
    feeds = dict(zip((p.name for p in model.graph.input), inputs, strict=False))
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            onnx.checker.check_model(model, full_check=True)
            outputs = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
        right = [np.asarray(y).astype(onnx.helper.tensor_dtype_to_np_dtype(types[p.name]))
                 for p, y in zip(model.graph.output, outputs, strict=True)]
    except Exception:  # of many kinds: the reference takes fewer dtypes than the standard
        return None
    names = [np.asarray(x).dtype.name for x in (*inputs, *right)]
    tolerance = max(TOLERANCES.get(name, STEPS) for name in names)
    return replace(case, model=model, data=[(inputs, right)], relative=tolerance,
                   absolute=tolerance)


def _converted(onnx: Any, node: Any, name: str, x: Any, types: Mapping[str, int]) -> Any:
    """An input in another dtype: numbers that it has, and no others."""
    x, target = np.asarray(x), onnx.helper.tensor_dtype_to_np_dtype(types[name])
    names = [np.dtype(onnx.helper.tensor_dtype_to_np_dtype(t)).name for t in types.values()]
    if node.op_type in ("Cast", "CastLike"):  # the standard leaves numbers out of range open
        few = [1.0] if any("e8m0" in n for n in names) else [0.0, 1.0, 0.5]
        few += [] if any(n.startswith(("u", "int2")) or "e8m0" in n for n in names) else [-1.0, 3.0]
        y = np.resize(np.array(few, np.float32), x.shape)
    elif x.dtype == target:
        return x
    elif np.dtype(target).kind in "iu" or target.name.startswith(("int", "uint")):
        form = FORMATS.get(types[name])
        low, high = ((form.lowest, form.highest) if form else
                     (int(np.iinfo(target).min), int(np.iinfo(target).max)))
        y = np.nan_to_num(x.astype(np.float64), posinf=9, neginf=-9)
        y = y * 5 if x.dtype.kind == "f" and np.abs(y).max(initial=0) < 1.5 else y
        y = np.rint(np.clip(y, max(low, -2 ** 30), min(high, 2 ** 30)))
    elif target.name == "bool":
        y = x.astype(np.float64) > 0
    else:
        y = x.astype(np.float64 if target == np.float64 else np.float32)
        if types[name] in FORMATS:  # beyond the largest is NaN in some, and no integer
            most = magnitudes(FORMATS[types[name]])[FORMATS[types[name]].top]
            y = np.clip(y, -most, most)
    if name.endswith("zero_point") and "float" in target.name:
        y = np.zeros_like(y)  # the only one that floats may have
    if node.op_type in NO_ZERO and name == node.input[1]:
        y = np.where(y == 0, 1, y)
    return y.astype(target)


# -- outcomes --------------------------------------------------------------------------------------

_chosen: list[SuiteCase] = []  # inherited by forked processes


def _judged(k: int, device: str | None) -> list[VariantResult]:
    [node] = _chosen[k].model.graph.node
    warnings.simplefilter("ignore")
    with np.errstate(all="ignore"):
        return [VariantResult(node.op_type, version, dtype, _chosen[k].name,
                              *_outcome(model, device))
                for model, version, dtype in variants(_chosen[k])]


def _outcome(case: SuiteCase, device: str | None) -> tuple[str, str]:
    verdict = judge(case, device)
    return verdict.outcome, verdict.reason


def explained(result: VariantResult) -> bool:
    """Whether a difference is one of those that are known."""
    kind = "integers" if "int" in result.dtype or result.dtype == "bool" else result.dtype
    return (result.op, kind) in EXPLAINED or (result.op, result.version) in EXPLAINED


def chosen(only: str = "") -> Iterator[SuiteCase]:
    """Tests of one node of ONNX itself, whose tensors are all inputs; a few of the same op with the
    same attributes. `only`: names of ops, separated by
    commas."""
    alike: collections.Counter[tuple[str, ...]] = collections.Counter()
    for case in cases(["node"]):
        graph = case.model.graph
        node = graph.node[0]
        if (len(graph.node) > 1 or node.domain or graph.initializer or "expanded" in case.name or
                (only and node.op_type not in only.split(",")) or
                any(not p.type.HasField("tensor_type") for p in (*graph.input, *graph.output)) or
                any(p.type.tensor_type.elem_type == package().TensorProto.STRING
                    for p in (*graph.input, *graph.output))):
            continue
        key = node.op_type, *(a.name for a in node.attribute)
        alike[key] += 1
        if alike[key] <= ALIKE:
            yield case


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tests that are asked for. 1 where one differs without an explanation."""
    parser = argparse.ArgumentParser(prog="python -m tools.onnx_dtypes", description=__doc__)
    parser.add_argument("--device", help="the device to compile for; without, NumPy evaluates")
    parser.add_argument("--only", default="", help="names of ops, separated by commas")
    parser.add_argument("--each", type=int, default=1, help="take one of so many tests")
    parser.add_argument("--turn", type=int, default=0, help="which of them, modulo --each")
    parser.add_argument("--jobs", type=int, default=usable_cores(), help="processes")
    options = parser.parse_args(arguments)
    _chosen[:] = [*chosen(options.only)][options.turn % options.each::options.each]
    counts: collections.Counter[str] = collections.Counter()
    faults = 0
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork")) as pool:
        for future in [pool.submit(_judged, k, options.device) for k in range(len(_chosen))]:
            for result in future.result():
                is_explained = result.outcome not in RIGHT and explained(result)
                counts["explained" if is_explained else result.outcome] += 1
                if result.outcome not in RIGHT and not is_explained:
                    faults += 1
                    print(f"{result.case} of opset {result.version}, "
                          f"{result.dtype or 'as it is'}: {result.outcome}: {result.reason}",
                          flush=True)
    print(", ".join(f"{n} {outcome}" for outcome, n in counts.most_common()))
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
