"""`zt.export`: compiles a function of tensors ahead of time and writes it to a file."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ztorch.arguments import checked
from ztorch.arrays.complex_tensor import ComplexTensor, in_parts, is_complex, of_parts
from ztorch.arrays.elements import stored_array
from ztorch.arrays.exchange import as_host_array, dtype_of, shown
from ztorch.arrays.function_trace import FunctionTrace, function_trace
from ztorch.arrays.node import Handle, TensorNode, placeholder
from ztorch.arrays.placement import device as default
from ztorch.arrays.specs import Spec, spec
from ztorch.arrays.structure import number_dtypes, rebuild
from ztorch.compile.export import chosen_format, export_traced
from ztorch.compile.traced_model import TracedModel
from ztorch.dtypes import f32
from ztorch.errors import ConfigError, KernelError, Unsupported
from ztorch.graph.op import OPS, constant, leaf
from ztorch.graph.trees import LEAF, flatten
from ztorch.graph.value import Graph, Value
from ztorch.kernels.signature import ArrayType, parse_signature
from ztorch.layers.network import Network
from ztorch.runtime.snapshot import Metadata
from ztorch.runtime.spec import ARGUMENT, CALL

_COMPILED_IN = (bool, int, float, str, tuple, type(None))


@checked
def export(function: Callable[..., Any], path: str | os.PathLike[str], *arguments: Any,
           device: str = "auto", format: str | None = None,
           sizes: Mapping[str, int] | None = None, **named: Any) -> list[Path]:
    """Compiles a function of tensors for a device and writes it to a file, which runs without the
    function's source.

    Args:
        function: A kernel, a compiled function, or any function of tensors. It returns a tensor, or
            a list, tuple or dict of tensors.
        path: The file, NAME.zt, for `zt.load_function`; a folder for C.
        *arguments: The arguments of the function, each as a type, such as `"f32[64, 1024]"` or
            `"f32[]"`, or as an array or tensor of that shape and dtype. Numbers and other strings
            are compiled in. A kernel with a signature needs only `sizes`.
        device: The device, such as `"cuda:sm_90"`; it need not be in this machine. Default:
            `"auto"`.
        format: `"zt"`, or `"c"` for a C library: NAME.h, libNAME.so, libNAME.a and an example; for
            the device `"c"`, C source. `None` derives it from the path. Default: `None`.
        sizes: The values of the size names in types. Default: `None`.
        **named: Keyword arguments of the function.

    Returns:
        The paths of the written files.

    Raises:
        ConfigError: An argument has no type, or the function keeps state.

    Examples:
        >>> import os, tempfile, numpy as np, ztorch as zt
        >>> @zt.kernel("f32[b, n], f32[n] -> f32[b, n]")
        ... def scale(x, g):
        ...     out = np.empty_like(x)
        ...     for i, j in zt.grid(*x.shape):
        ...         out[i, j] = x[i, j] * g[j]
        ...     return out
        >>> path = os.path.join(tempfile.mkdtemp(), "scale.zt")
        >>> files = zt.export(scale, path, sizes={"b": 2, "n": 3})
        >>> zt.load_function(path)(np.ones((2, 3)), [1, 2, 3])[0]
        array([1., 2., 3.], dtype=float32)
    """
    if isinstance(function, Network):
        raise ConfigError("zt.export takes a function of tensors; a model has a method for files: "
                          "model.export(path, device=..., format=...)")
    name = getattr(function, "__name__", "function")
    if format == "web":
        raise Unsupported(f"{name} is a function of tensors, and pages run models: put a kernel "
                          "into one by zt.layers.Kernel, or write its code for WebGPU, a .zt for "
                          "the device webgpu")
    kind = chosen_format(path, device, format)
    if kind not in ("zt", "c"):
        raise Unsupported(f"{name} is a function of tensors, and {kind!r} is a format of models; "
                          "write a .zt, or C")
    trace, names = call_trace(function, name, arguments, named, sizes)
    if trace.cells.read or trace.cells.written:
        raise ConfigError(f"{name} draws random numbers or keeps state from call to call, which a "
                          "file cannot; take random numbers and state as arguments")
    results = results_of(name, trace, [ARGUMENT + n for n in names])
    graph = Graph(dict(zip(_outputs(name, trace.tree), results, strict=True)))
    metadata = Metadata(name, 0, {}, {}, (), arguments=names,
                        outputs_are="one" if "y" in graph.outputs else _several(trace.tree))
    return export_traced(TracedModel({CALL: graph}, metadata), path, device, kind)


def call_trace(function: Callable[..., Any], name: str, arguments: tuple[Any, ...],
               named: dict[str, Any], sizes: Mapping[str, int] | None,
               ) -> tuple[FunctionTrace, tuple[str, ...]]:
    """The graph of a call of a function, and the names of its tensors.

    Args:
        function: The function.
        name: The function's name in errors.
        arguments: The positional arguments: types, or arrays and tensors of the same shapes and
            dtypes.
        named: The keyword arguments, likewise.
        sizes: The values of the size names in types.
    """
    if sizes is not None and not isinstance(sizes, Mapping):
        raise ConfigError(f"{name}: sizes={sizes!r} must give a size to each name in a type, such "
                          'as {"n": 64}')
    bound = _bound(function, name, arguments, named, dict(sizes or {}))
    names: dict[int, str] = {}
    for n, x in bound.arguments.items():
        if isinstance(x, ComplexTensor):  # two arguments of the graph
            names |= {id(x.real): f"{n}_real", id(x.imag): f"{n}_imag"}
        elif isinstance(x, TensorNode):
            names[id(x)] = n
    leaves, shape = flatten((bound.args, bound.kwargs))
    with default("cpu"):  # tensors that the function creates, besides its arguments
        trace = function_trace(function, name, leaves, shape, fixes_weights=True)
    return trace, tuple(names[id(x)] for x in leaves if isinstance(x, TensorNode))


def _bound(function: Callable[..., Any], name: str, arguments: tuple[Any, ...],
           named: dict[str, Any], sizes: dict[str, int]) -> inspect.BoundArguments:
    """The arguments of the call to trace: a node for each tensor."""
    signature = inspect.signature(function)
    own = getattr(function, "signature", None)  # a kernel's signature
    if own is not None and not arguments and not named:
        arguments = own.arguments
    try:
        bound = signature.bind(*arguments, **named)
    except TypeError as error:
        raise ConfigError(f"{name}: {error}; export takes the type of each argument, such as "
                          f"\"f32[64, 1024]\": {name}{signature}") from None
    bound.apply_defaults()
    _need_named(name, sizes, bound.arguments.values())
    for key, x in bound.arguments.items():
        if is_complex(x) and hasattr(x, "shape"):
            part = spec(tuple(x.shape), in_parts(x).real.dtype, "cpu")
            nodes: Any = placeholder(part), placeholder(part)
            bound.arguments[key] = of_parts(*nodes)
            continue
        own_spec = _spec(f"{name}: argument {key!r}", x, sizes)
        if own_spec is not None:
            bound.arguments[key] = placeholder(own_spec)
    return bound


def _need_named(name: str, sizes: Mapping[str, int], arguments: Iterable[Any]) -> None:
    """Raises a ConfigError if `sizes` has a name that no type uses."""
    names = {d for x in arguments for d in _dims(x) if isinstance(d, str)}
    if unknown := [n for n in sizes if n not in names]:
        raise ConfigError(f"{name}: the types of its arguments have no size {unknown[0]!r}; "
                          f"they have {', '.join(map(repr, sorted(names))) or 'numbers alone'}")


def _dims(x: Any) -> Iterable[int | str]:
    kinds = [x] if isinstance(x, ArrayType) else parse_signature(x).arguments if (
        isinstance(x, str) and "[" in x) else []
    return [d for kind in kinds for d in kind.dims or ()]


def _spec(label: str, x: Any, sizes: Mapping[str, int]) -> Spec | None:
    """The shape and dtype of an argument that is a tensor; None if it is compiled in."""
    if isinstance(x, Handle):
        return spec(x.node.spec.shape, x.node.spec.dtype, "cpu")
    if isinstance(x, str) and "[" in x:
        try:
            kinds = parse_signature(x).arguments
        except KernelError as error:
            raise ConfigError(f"{label}: {error}") from None
        if len(kinds) != 1:
            raise ConfigError(f"{label} is {x!r}; give one type, such as 'f32[64, 1024]'")
        x = kinds[0]
    if isinstance(x, ArrayType):
        return _sized(label, x, sizes)
    if isinstance(x, _COMPILED_IN):
        return None
    if isinstance(x, (dict, list)):
        raise ConfigError(f"{label} is a {type(x).__name__}; a function in a file takes tensors, "
                          "so give each an argument of its own")
    array = as_host_array(label, x)
    return spec(array.shape, dtype_of(array.dtype), "cpu")


def _sized(label: str, kind: ArrayType, sizes: Mapping[str, int]) -> Spec:
    if kind.dims is None:
        raise ConfigError(f"{label} may have any shape ({kind.text}); give a type with its sizes, "
                          "such as 'f32[64, 1024]'")
    unknown = [d for d in kind.dims if isinstance(d, str) and d not in sizes]
    if unknown:
        raise ConfigError(f"{label} is {kind.text}, and the size of {unknown[0]!r} is not known; "
                          f"give sizes={{{unknown[0]!r}: 64}}, or --shapes {unknown[0]}=64")
    shape = tuple(sizes[d] if isinstance(d, str) else d for d in kind.dims)
    return spec(shape, kind.dtype or f32, "cpu")


def results_of(name: str, trace: FunctionTrace, ports: Sequence[str]) -> list[Value]:
    """The results of a function for each input port: first the tensors, then the states."""
    pending = trace.pending
    tensors = pending.leaves[:len(ports)]
    inputs = [leaf("input", port, n.spec.shape, n.spec.dtype)
              for port, n in zip(ports, tensors, strict=True)]
    constants = [constant(shown(stored_array(n), n.spec.dtype), n.spec.dtype)
                 for n in trace.captured]
    numbers = [OPS.full((), x, d) for x, d in zip(
        pending.numbers, number_dtypes(pending.key), strict=True)]
    values = rebuild(pending.key, [*inputs, *constants], numbers)
    results = [values[pending.slots[n]] for n in trace.nodes]
    if any(not v.size for v in results):
        raise ConfigError(f"{name} gives a tensor without elements; there is nothing to compile")
    return results


def _outputs(name: str, tree: Any) -> list[str]:
    """The ports of the results."""
    if tree == LEAF:
        return ["y"]
    kind, keys, parts = tree
    if any(part != LEAF for part in parts):
        raise ConfigError(f"{name} returns a tree of tensors; a function in a file returns one, or "
                          "a list or dict of them")
    return [f"y/{k}" for k in (keys if kind is dict else range(keys))]


def _several(tree: Any) -> str:
    return "dict" if tree[0] is dict else "list"
