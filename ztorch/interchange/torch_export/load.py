"""Loads models from programs of torch.export."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ztorch.arguments import checked
from ztorch.dtypes import i64
from ztorch.errors import ArtifactError, Unsupported
from ztorch.interchange.onnx.contents import NodeSpec, OnnxFile, StoredCodes
from ztorch.interchange.onnx.faults import UnsupportedNode, unsupported
from ztorch.interchange.onnx.load import model_of
from ztorch.interchange.onnx.load_layer import layer_of
from ztorch.interchange.onnx.protobuf import Port
from ztorch.interchange.torch_export import calls as _calls  # noqa: F401 (fills CALLS)
from ztorch.interchange.torch_export.archive import CallSpec, ExportedProgram, damage, read
from ztorch.interchange.torch_export.memory import SharedMemory, write_target
from ztorch.interchange.torch_export.translation import (
    CALLS,
    COMPLEX_CALLS,
    IGNORED,
    OPSET,
    CallTensor,
    OperatorCall,
    Result,
    Translation,
    key_of,
)
from ztorch.layers.layer import Layer
from ztorch.model.model import Model

_LAYER_CALL = "zt.torch_export.load_layer(path)"
_DAMAGE = (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError)


@checked
def load(path: str | os.PathLike[str], *, sizes: Mapping[str, int] | None = None,
         name: str | None = None, keep_dtypes: bool = False) -> Model:
    """Loads the model in a program of torch.export (.pt2). It compiles, predicts and trains like
    any other. PyTorch is not needed, and nothing is unpickled.

    Parameters become weights, named `graph/` and their name in the module, frozen where they have
    `requires_grad=False`. The first axis of each input is the batch. Other dynamic axes stay open;
    their names are like `axis1`.

    Args:
        path: The file.
        sizes: Sizes for open axes, by name, to fix them. Default: `None`.
        name: The name of the model; None: that of the file. Default: `None`.
        keep_dtypes: Whether to compute in the float dtypes of the program rather than in the dtype
            of `compile`. Default: `False`.

    Returns:
        A Sequential for one input and one output, else a Model.

    Raises:
        ArtifactError: The file is not such a program, or is damaged.
        Unsupported: It has calls that ztorch cannot import; the message lists all of them.
        ConfigError: The calls accept no size of an open axis.

    Examples:
        ```python
        torch.export.save(torch.export.export(net.eval(), (x,), dynamic_shapes=...), "net.pt2")
        program = zt.torch_export.load("net.pt2").compile(batch_size=8)
        ```
    """
    return model_of_program(read(path), sizes, name, keep_dtypes)


def model_of_program(program: ExportedProgram, sizes: Mapping[str, int] | None, name: str | None,
                     keep_dtypes: bool) -> Model:
    """The model in a program; see `load`."""
    with damage(program.path):
        file = _translate(program)
    return model_of(file, sizes=sizes, name=name, keep_dtypes=keep_dtypes)


@checked
def load_layer(path: str | os.PathLike[str], *, name: str = "graph") -> Layer:
    """Loads a program of torch.export as a layer for tensors of the shapes it was exported with,
    none of which needs a batch: the nodes and edges of a graph, or a function of arrays.

    Floats keep the dtypes of the program. Its float32 parameters are weights.

    Args:
        path: The file.
        name: The name of the layer. Default: `"graph"`.

    Returns:
        A layer that takes a list of the inputs and returns the output, or a dict of several.

    Raises:
        ArtifactError: The file is not such a program, or is damaged.
        Unsupported: It has calls that ztorch cannot import; the message lists all of them.

    Examples:
        ```python
        torch.export.save(torch.export.export(net.eval(), (nodes, senders, receivers)), "net.pt2")
        y = zt.torch_export.load_layer("net.pt2")([nodes, senders, receivers])
        ```
    """
    program = read(path)
    with damage(program.path):
        file = _translate(program)
    return layer_of(file, {}, name=name)


def _translate(program: ExportedProgram) -> OnnxFile:
    """The program as a graph of ONNX nodes. Raises one Unsupported for all calls that fail."""
    if not program.inputs:
        raise Unsupported(f"{program.path} has no inputs; ztorch imports models that have some")
    translation = _start(program)
    memory = SharedMemory(program.calls, program.types, {
        name: label for name, (label, _, _) in program.arrays.items()})
    needed, faults = _needed(program, memory), []
    for spec in needed:
        try:
            _call(spec, translation, memory, program.path)
        except Unsupported as error:
            faults.append(UnsupportedNode(NodeSpec(key_of(spec), "", spec.name, {}, (), ()), error))
            _add_placeholders(spec, program, translation)
    if faults:
        raise unsupported(program.path, faults, len(needed), kind="calls")
    try:
        outputs = tuple(_output(name, translation) for name in program.outputs)
    except Unsupported as error:
        raise Unsupported(f"{program.path}: {error}") from None
    return OnnxFile(program.path, {"": OPSET}, _ports(program), outputs, tuple(translation.nodes),
                    translation.arrays, dict, program.frozen, _LAYER_CALL)


def _start(program: ExportedProgram) -> Translation:
    """A translation with the inputs, weights and constants of a program."""
    translation = Translation(program.types)
    for name, kind in program.inputs.items():
        if kind.is_complex:
            raise Unsupported(f"{program.path}: the input {name!r} is complex; export a module "
                              "that calls torch.view_as_complex on pairs")
        translation.tensors[name] = CallTensor(name, kind.dtype, kind.dims)
    for name, (label, array, d) in program.arrays.items():
        is_complex = name in program.types and program.types[name].is_complex
        dims = array.shape[:-1] if is_complex else array.shape
        translation.tensors[name] = CallTensor(label, d, dims, is_complex)
        translation.arrays[label] = array if d.in_numpy else StoredCodes(array, d)
    return translation


def _add_placeholders(spec: CallSpec, program: ExportedProgram, translation: Translation) -> None:
    """Adds tensors for the results of an unsupported call, so that later calls can be checked."""
    for name in OperatorCall(spec, translation).result_names:
        if name in program.types:
            kind = program.types[name]
            translation.tensors[name] = CallTensor(name, kind.dtype, kind.dims, kind.is_complex)


def _output(name: str, translation: Translation) -> Port:
    """An output, named as its tensor in the program, with underscores if the name is taken."""
    y = translation.tensor(name)
    if y.is_complex:
        raise Unsupported(f"the output {name!r} is complex; return torch.view_as_real of it")
    names = {y.name, *translation.arrays, *(n for node in translation.nodes for n in node.outputs)}
    while name in names:
        name += "_"
    translation.nodes.append(NodeSpec("Identity", "", name, {}, (y.name,), (name,), OPSET))
    return Port(name, y.dims, y.dtype)


def _needed(program: ExportedProgram, memory: SharedMemory) -> list[CallSpec]:
    """The calls that outputs depend on, without those that only check sizes."""
    names, needed = set(program.outputs), []
    roots = {memory.root(name) for name in names}
    for spec in reversed(program.calls):
        results = OperatorCall(spec, Translation({})).result_names
        target = write_target(spec)
        if key_of(spec) not in IGNORED and (names.intersection(results) or (
                target is not None and memory.root(target) in roots)):
            arguments = _tensor_names(spec.inputs)
            names.update(arguments)
            roots.update(map(memory.root, arguments))
            needed.append(spec)
    return needed[::-1]


def _tensor_names(value: object) -> list[str]:
    """The names of all tensors in the arguments of a call."""
    if isinstance(value, Mapping):
        names = [v for key, v in value.items() if key in ("name", "as_name") and isinstance(v, str)]
        return names + [name for v in value.values() for name in _tensor_names(v)]
    if isinstance(value, list):
        return [name for v in value for name in _tensor_names(v)]
    return []


def _call(spec: CallSpec, translation: Translation, memory: SharedMemory, path: str) -> None:
    """Adds the nodes of a call."""
    key = key_of(spec)
    target = write_target(spec)
    if key not in CALLS and key not in COMPLEX_CALLS and target is None:
        raise Unsupported("ztorch has no such operator; run_decompositions() of the exported "
                          "program may replace it by others")
    call = OperatorCall(spec, translation)
    results: Result
    try:
        if target is None:
            registry = COMPLEX_CALLS if call.has_complex else CALLS
            if key not in registry:
                numbers = "complex" if registry is COMPLEX_CALLS else "real"
                raise Unsupported(f"it computes with {numbers} numbers")
            results = registry[key](call)
        else:
            memory.write(spec, translation)
            results = translation.tensors[target].name
    except Unsupported:
        raise
    except _DAMAGE as error:
        raise ArtifactError(f"{path}: call {spec.name!r} of {key} is invalid: "
                            f"{type(error).__name__}: {error}") from None
    results = [results] if isinstance(results, str) else results
    for name, result in zip(call.result_names, results, strict=False):
        kind = translation.types.get(name)
        translation.tensors[name] = (
            CallTensor(result, kind.dtype, kind.dims, kind.is_complex) if kind else
            CallTensor(result, i64, ()))  # computed from shapes


def _ports(program: ExportedProgram) -> tuple[Port, ...]:
    """The inputs. Axes of one symbol are named by the first of them, as the axes of an Input."""
    names: dict[str, str] = {}
    ports = []
    for label, kind in program.inputs.items():
        for k, n in enumerate(kind.dims):
            if isinstance(n, str):
                owner = f"{label}." if len(program.inputs) > 1 else ""
                names.setdefault(n, f"{owner}axis{k}" if k else "batch")
        ports.append(Port(label, tuple(names[n] if isinstance(n, str) else n for n in kind.dims),
                          kind.dtype))
    return tuple(ports)
