"""Translates calls of PyTorch's operators to ONNX nodes, which the importers of ONNX files read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from ztorch.dtypes import DType, boolean, f32, i64, result_type
from ztorch.errors import Unsupported
from ztorch.interchange.onnx.contents import NodeSpec, StoredCodes
from ztorch.interchange.torch_export.archive import DTYPES, CallSpec, TensorType

OPSET = 23  # the version of ONNX's ops that calls are translated to


@dataclass(frozen=True)
class CallTensor:
    """A tensor of the program, or an integer that is computed from shapes."""

    name: str  # in the ONNX graph
    dtype: DType
    dims: tuple[int | str, ...]
    is_complex: bool = False  # pairs of floats, along an axis that dims do not count

    @property
    def rank(self) -> int:
        return len(self.dims)


@dataclass
class Translation:
    """The nodes and tensors of a program that is being translated."""

    types: Mapping[str, TensorType]
    nodes: list[NodeSpec] = field(default_factory=list)
    arrays: dict[str, np.ndarray | StoredCodes] = field(default_factory=dict)
    tensors: dict[str, CallTensor] = field(default_factory=dict)  # by name in the program
    counts: Counter[str] = field(default_factory=Counter)  # of names that calls have made

    def tensor(self, name: str) -> CallTensor:
        """A tensor of the program by its name there."""
        if name not in self.tensors:
            raise Unsupported(f"it reads {name!r}, a result that ztorch does not compute")
        return self.tensors[name]


Result = str | list[str]  # names of tensors in the ONNX graph
Translator = Callable[["OperatorCall"], Result]

CALLS: dict[str, Translator] = {}  # by name of the operator, such as aten.relu.default
COMPLEX_CALLS: dict[str, Translator] = {}  # for complex arguments or results
IGNORED = {"aten._assert_scalar.default", "aten._assert_tensor_metadata.default",
           "aten._assert_async.msg", "aten.sym_constrain_range_for_size.default",
           "aten.sym_constrain_range.default"}


def call(*operators: str, of_complex: bool = False) -> Callable[[Translator], Translator]:
    """Registers the function that translates these operators.

    Args:
        operators: Their names without `aten.`; a name without an overload means `.default`.
        of_complex: Whether it is for complex arguments or results. Default: `False`.
    """
    registry = COMPLEX_CALLS if of_complex else CALLS

    def register(function: Translator) -> Translator:
        for name in operators:
            key = name if name.startswith(("_operator.", "transformers.")) else (
                f"aten.{name}" if "." in name else f"aten.{name}.default")
            assert key not in registry, f"{key} is registered twice"
            registry[key] = function
        return function

    return register


_SAME = {  # other names of operators
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh",
    "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "divide": "div", "greater": "gt",
    "greater_equal": "ge", "less": "lt", "less_equal": "le", "multiply": "mul", "negative": "neg",
    "not_equal": "ne", "special_erf": "erf", "special_erfc": "erfc", "special_erfinv": "erfinv",
    "special_exp2": "exp2", "special_expit": "sigmoid", "special_expm1": "expm1",
    "special_i0": "i0", "special_log1p": "log1p", "special_log_softmax": "log_softmax",
    "special_logit": "logit", "special_logsumexp": "logsumexp", "special_round": "round",
    "special_sinc": "sinc", "special_softmax": "softmax", "special_xlogy": "xlogy",
    "subtract": "sub", "true_divide": "div"}
_OVERLOADS = {"softmax": "int", "log_softmax": "int"}  # where the other name has none


def key_of(spec: CallSpec) -> str:
    """The key of a call's operator in the registry."""
    key = spec.target.removeprefix("torch.ops.")
    space, _, name_and_overload = key.partition(".")
    name, _, overload = name_and_overload.partition(".")
    plain = name[:-1] if name.endswith("_") else name
    if space != "aten" or plain not in _SAME:
        return key
    same = _SAME[plain]
    overload = _OVERLOADS.get(same, overload)
    return f"aten.{same}{name[len(plain):]}.{overload}"


class OperatorCall:
    """A call that is being translated."""

    def __init__(self, spec: CallSpec, translation: Translation):
        self.spec = spec
        self._translation = translation

    @property
    def op(self) -> str:
        """The name of the operator without its overload, such as relu."""
        return key_of(self.spec).split(".")[1]

    # -- arguments ---------------------------------------------------------------------------------

    def get(self, name: str, default: Any = None) -> Any:
        """An argument: a tensor, a number, a list of them; the default where it is left out."""
        if name not in self.spec.inputs:
            return default
        [(form, value)] = self.spec.inputs[name].items()
        decoded = self._decoded(form, value)
        return default if decoded is None else decoded

    @property
    def tensors(self) -> list[CallTensor]:
        """All arguments that are tensors."""
        values = [self.get(name) for name, argument in self.spec.inputs.items()
                  if {"as_tensor", "as_tensors", "as_optional_tensor"} & argument.keys()]
        return [v for value in values for v in (value if isinstance(value, list) else [value])
                if isinstance(v, CallTensor)]

    @property
    def has_complex(self) -> bool:
        """Whether an argument or a result is complex."""
        types = self._translation.types
        return any(x.is_complex for x in self.tensors) or any(
            types[name].is_complex for name in self.result_names if name in types)

    def with_tensors(self, tensors: Mapping[str, CallTensor]) -> OperatorCall:
        """The same call with some tensors replaced, by their names in the ONNX graph."""
        replaced = {name: tensors.get(x.name, x) for name, x in self._translation.tensors.items()}
        return OperatorCall(self.spec, replace(self._translation, tensors=replaced))

    def _decoded(self, form: str, value: Any) -> Any:
        match form:
            case "as_none":
                return None
            case "as_tensor":
                return self._translation.tensor(value["name"])
            case "as_tensors":
                return [self._translation.tensor(v["name"]) for v in value]
            case "as_optional_tensors" | "as_sym_ints":
                return [self._decoded(*next(iter(v.items()))) for v in value]
            case "as_sym_int" | "as_optional_tensor":
                return self._decoded(*next(iter(value.items())))
            case "as_name":
                return self._translation.tensor(value)
            case "as_scalar_type":
                return DTYPES[value]
            case "as_float":
                return float(value)  # infinities are written as text
            case "as_floats":
                return [float(v) for v in value]
            case "as_int" | "as_ints" | "as_bool" | "as_string":
                return value
        return self.unsupported(f"an argument that is {form.removeprefix('as_')}")

    def tensor(self, name: str = "self") -> CallTensor:
        """An argument that is a tensor."""
        value = self.get(name)
        if not isinstance(value, CallTensor):
            self.unsupported(f"{name}={value!r}, which is not a tensor")
        return value

    def x(self, name: str = "self") -> str:
        """The name of an argument that is a tensor."""
        return self.tensor(name).name

    def integers(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """An argument with constant integers."""
        values = self.get(name, default)
        values = [values] if isinstance(values, int) else values
        if not isinstance(values, (list, tuple)) or not all(isinstance(n, int) for n in values):
            self.unsupported(f"{name}={values!r}, which are not constant integers")
        return list(values)

    @property
    def result(self) -> TensorType:
        """The type of the first result."""
        return self._translation.types[self.result_names[0]]

    @property
    def result_names(self) -> list[str]:
        """The names of results in the program."""
        names = []
        for output in self.spec.outputs:
            [(form, value)] = output.items()
            if form == "as_tensors":
                names += [v["name"] for v in value]
            elif form in ("as_tensor", "as_sym_int", "as_optional_tensor"):
                names.append(value.get("name") or value.get("as_name") or "")
            else:
                names.append("")
        return names

    def gives(self, k: int) -> bool:
        """Whether another call reads result k, or it is an output."""
        names = self.result_names
        return k < len(names) and bool(names[k]) and "_unused_" not in names[k]

    def unsupported(self, why: str) -> NoReturn:
        """Raises an error for a feature that ztorch lacks."""
        raise Unsupported(why)

    # -- nodes -------------------------------------------------------------------------------------

    def nodes(self, op: str, inputs: Sequence[str], count: int, domain: str = "",
              **attrs: Any) -> list[str]:
        """The results of a new node; an empty name is an input that is left out."""
        names = [self._new() for _ in range(count)]
        present = {key: value for key, value in attrs.items() if value is not None}
        self._translation.nodes.append(NodeSpec(
            op, domain, f"{key_of(self.spec)} {self.spec.name}", present, tuple(inputs),
            tuple(names), OPSET))
        return names

    def _new(self) -> str:
        """A new name. A call may be translated more than once, after a write."""
        counts = self._translation.counts
        counts[self.spec.name] += 1
        return f"{self.spec.name}/{counts[self.spec.name] - 1}"

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        """The result of a new node that has only one."""
        return self.nodes(op, inputs, 1, **attrs)[0]

    def constant(self, array: Any) -> str:
        """A tensor of these numbers."""
        name = self._new()
        self._translation.arrays[name] = np.asarray(array)
        return name

    def number(self, value: Any, d: DType) -> str:
        """A number, or an integer computed from shapes, as a tensor without axes of a dtype."""
        if isinstance(value, CallTensor):
            return self.cast(value, d)
        return self.constant(np.array(value, d.working))

    def ints(self, *values: int | CallTensor) -> str:
        """A tensor of integers, some of them computed from shapes."""
        if all(isinstance(n, int) for n in values):
            return self.constant(np.array(values, np.int64))
        axis = self.constant(np.array([0], np.int64))
        parts = [self.constant(np.array([n], np.int64)) if isinstance(n, int) else
                 self.node("Unsqueeze", n.name, axis) for n in values]
        return self.node("Concat", *parts, axis=0)

    def cast(self, x: CallTensor, d: DType) -> str:
        """A tensor in a dtype."""
        return x.name if x.dtype is d else self.node("Cast", x.name, to=d.onnx)

    def ones(self, n: int | str, d: DType) -> str:
        """Ones for a weight that is left out."""
        if not isinstance(n, int):
            self.unsupported("a normalization without a weight, of an open number of channels")
        return self.constant(np.ones(n, d.working))

    def zeros(self, n: int | str, d: DType) -> str:
        """Zeros for a weight that is left out."""
        return self.node("Sub", self.ones(n, d), self.number(1, d))

    def promoted(self, *names: str) -> tuple[list[str], DType]:
        """Arguments in the dtype that PyTorch computes with, and that dtype."""
        values = [self.get(name) for name in names]
        d = promotion(values)
        return [self.cast(v, d) if isinstance(v, CallTensor) else self.number(v, d)
                for v in values], d


def promotion(values: Sequence[Any]) -> DType:
    """The dtype that PyTorch computes with. The highest kind decides: bool, integer, float. Within
    a kind, tensors with axes come before those without, and those before numbers."""
    ranked = []
    for v in values:
        if isinstance(v, CallTensor):
            ranked.append((_kind(v.dtype), 2 if v.rank else 1, v.dtype))
        else:
            d = boolean if isinstance(v, bool) else i64 if isinstance(v, int) else f32
            ranked.append((_kind(d), 0, d))
    highest = max(rank for *rank, _ in ranked)
    return result_type(*(d for *rank, d in ranked if rank == highest))


def _kind(d: DType) -> int:
    return 2 if d.is_float else 1 if d.is_int else 0
