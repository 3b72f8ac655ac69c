"""Consistency rules of a program's spec, each at its boundary, on specs small enough to read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from ztorch import ops
from ztorch.codegen.targets import target
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import DType, boolean, f16, f32, u8
from ztorch.files.kinds import BadValue
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.runtime.manifest import check_program, check_scoring
from ztorch.runtime.packed import pack, unpack
from ztorch.runtime.snapshot import Metadata
from ztorch.runtime.spec import (
    CALL,
    FunctionSpec,
    LaunchSpec,
    ProgramSpec,
    StateSpec,
    TensorSpec,
    entry_point,
    kernel_name,
)

X, Y = TensorSpec("x", (2, 4), f32), TensorSpec("y", (2, 3), f32)


def function(name: str, inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec],
             params: int, arena: int, launches: tuple[LaunchSpec, ...] = ()) -> FunctionSpec:
    inputs, outputs = list(inputs), list(outputs)
    return FunctionSpec(name, entry_point(name, inputs, outputs, params, arena),
                        {t.name: t for t in inputs}, {t.name: t for t in outputs}, 1.0,
                        launches=launches)


def program(states: Iterable[tuple[int, int]] = ((0, 64),), constants: Any = (),
            params: int = 64, **more: Any) -> ProgramSpec:
    """A program for a CPU with states of bytes, given by offset and size."""
    kept = {f"s{k}": StateSpec(f"s{k}", (size,), u8, offset, "weight", True)
            for k, (offset, size) in enumerate(states)}
    return ProgramSpec("net", "scalar", "x86_64", (), {
        "predict": function("predict", [X], [Y], params, 64)}, kept, params, 64,
        tuple(constants)).replace(**more)


def refused(spec: ProgramSpec) -> str:
    with pytest.raises(BadValue) as caught:
        check_program(spec)
    return str(caught.value)


# -- params ----------------------------------------------------------------------------------------


PARAMS_THAT_FIT = [
    ([(0, 64)], [], 64),
    ([(0, 64), (64, 64)], [], 128),  # side by side, without a gap
    ([(64, 64), (0, 64)], [], 128),  # in any order
    ([(0, 1), (64, 1)], [], 65),  # the last one ends where params do
    ([(0, 64)], [(64, 64)], 128),
    ([], [(0, 3)], 64),
    ([], [], 0),
]


def test_params_that_fit() -> None:
    for states, constants, params in PARAMS_THAT_FIT:
        check_program(program(states, constants, params))


PARAMS_THAT_DO_NOT_FIT = [
    ([(0, 65), (64, 64)], [], 192, r"states[1].offset is 64; it must be at least 65, where the one"),
    ([(64, 64), (0, 65)], [], 192, r"states[0].offset is 64; it must be at least 65, where the one"),
    ([(0, 64), (0, 64)], [], 128, r"states[1].offset is 0; it must be at least 64, where the one"),
    ([(0, 65)], [(64, 1)], 192, r"constants[0][0] is 64; it must be at least 65, where the one"),
    ([], [(0, 65), (64, 1)], 192, r"constants[1][0] is 64; it must be at least 65, where the one"),
    ([(63, 1)], [], 64, r"states[0].offset is 63; it must be a multiple of 64"),
    ([(0, 64)], [(96, 1)], 128, r"constants[0][0] is 96; it must be a multiple of 64"),
    ([(64, 65)], [], 128, r"states[0].offset is 64; it must be an offset from which 65 bytes"),
    ([(0, 65)], [], 64, r"states[0].offset is 0; it must be an offset from which 65 bytes"),
    ([(0, 64)], [], 65, r"params_bytes is 65; it must be no more than its states and constants"),
    ([(0, 65)], [], 129, r"params_bytes is 129; it must be no more than its states and constants"),
]


def test_params_that_do_not_fit() -> None:
    for states, constants, params, message in PARAMS_THAT_DO_NOT_FIT:
        assert refused(program(states, constants, params)).startswith(message)


# -- functions -------------------------------------------------------------------------------------


def with_ports(name: str, inputs: dict[str, tuple[int, ...]],
               outputs: dict[str, tuple[int, ...]]) -> ProgramSpec:
    """A program with another function, given by its inputs and outputs."""
    ports = [[TensorSpec(n, shape, f32) for n, shape in side.items()] for side in (inputs, outputs)]
    spec = program()
    return spec.replace(functions={**spec.functions, name: function(name, *ports, 64, 64)})


PORTS = [
    ("train", {"x": (2, 4), "y": (2, 3), "w": (2,)}, {"loss": (), "accuracy": ()}),
    ("train", {"x/a": (2, 4), "x/b": (2, 1), "y": (2, 3), "w": (2,)}, {"loss": ()}),
    ("predict", {"x/a": (2, 4), "x/b": (2, 1)}, {"y/c": (2, 4), "y/d": (2, 1)}),
    ("prefill", {"x": (2, 9), "length": (2,)}, {"position": (2,)}),
    ("prepare", {}, {}),
]


def test_ports_that_functions_have() -> None:
    for name, inputs, outputs in PORTS:
        check_program(with_ports(name, inputs, outputs))


WRONG_PORTS = [
    ("train", {"y": (2, 3), "w": (2,)}, {"loss": ()}, "inputs is ['y', 'w']; it must be the in"),
    ("train", {"x": (2, 4), "y": (2, 3), "w": (2,)}, {}, "outputs is []; it must be a list"),
    ("train", {"x": (), "y": (2, 3), "w": (2,)}, {"loss": ()}, "inputs[0].shape is []; it must be"),
    ("predict", {"x": (2, 4), "x/b": (2, 1)}, {"y": (2, 4)}, "inputs is ['x', 'x/b']; it must be"),
    ("predict", {"x/": (2, 4)}, {"y": (2, 4)}, "inputs is ['x/']; it must be the inputs x"),
    ("predict", {"x": (2, 4)}, {"y": (2, 4), "z": (2,)}, "outputs is ['y', 'z']; it must be"),
    ("predict", {"x": (2, 4)}, {"y": ()}, "outputs[0].shape is []; it must be a shape that begins"),
    ("prefill", {"x": (2, 9)}, {}, "inputs is ['x']; it must be the inputs length, x"),
    ("generate", {"x": (2,)}, {"tokens": (2, 9)}, "inputs is ['x']; it must be the inputs count, l"),
    ("beams", {"x": (2,)}, {"tokens": (2, 9)}, "inputs is ['x']; it must be the inputs beams, cou"),
    ("prepare", {"x": (2, 4)}, {}, "inputs is ['x']; it must be no inputs"),
]


def test_ports_that_functions_have_not() -> None:
    for name, inputs, outputs, message in WRONG_PORTS:
        number = 0 if name == "predict" else 1
        assert refused(with_ports(name, inputs, outputs)).startswith(f"functions[{number}].{message}")


def test_only_steps_of_a_models_own_ignore_targets_and_weights() -> None:
    whole = Metadata("net", 0, {}, {}, ()).replace(whole_batches=("train",))
    for inputs, outputs in (({"x": (2, 4), "y": (2, 3)}, {"loss": ()}),
                            ({"x": (2, 4), "y": (2, 3), "w": (2,)}, {"mae": ()})):
        spec = with_ports("train", inputs, outputs)
        check_program(spec)
        check_scoring(whole, spec)
        with pytest.raises(BadValue, match="a list with 'train', whose function lacks one of"):
            check_scoring(whole.replace(whole_batches=()), spec)


def test_required_functions() -> None:
    assert "it must be a list with a function 'predict'" in refused(program(functions={}))
    derived = StateSpec("s0", (64,), u8, 0, "derived", False)
    assert "it must be a list with a function 'prepare'" in refused(
        program().replace(states={"s0": derived}))


def test_a_symbol_is_of_the_sizes_that_are_listed() -> None:
    assert refused(program(arena_bytes=128)).startswith("functions[0].symbol is 'zt_predict_")


# -- launches --------------------------------------------------------------------------------------


def on_a_device(places: Any, entry: int = 0, params: int = 64, wrong_name: bool = False,
                x: TensorSpec = X) -> ProgramSpec:
    """A program of one kernel, which runs once."""
    launch = LaunchSpec(entry, (1, 1, 1), tuple(places), False)
    name = kernel_name("k0", (8, 1, 1), (2, 1, 1) if wrong_name else launch.grid, launch.places)
    spec = program([(0, 64)], params=params)
    return spec.replace(
        backend="dummy", target="dummy", entries=((name, 0, 10, (8, 1, 1)),),
        functions={"predict": function("predict", [x], [Y], 64, 64, (launch,))})


PLACES = [
    ("inputs", 0, 32, False), ("outputs", 0, 24, True), ("params", 0, 64, True),
    ("params", 32, 32, False), ("arena", 60, 4, True),
]


def test_places_within_their_space() -> None:
    for place in PLACES:
        check_program(on_a_device([place]))


PLACES_BEYOND = [
    (("inputs", 0, 33, False), "[2][0][2] is 33; it must be no more than its tensor takes"),
    (("inputs", 1, 4, False), "[2][0][1] is 1; it must be a slot below 1"),
    (("outputs", 0, 25, True), "[2][0][2] is 25; it must be no more than its tensor takes"),
    (("outputs", 1, 4, True), "[2][0][1] is 1; it must be a slot below 1"),
    (("params", 0, 65, True), "[2][0][2] is 65; it must be a part within the 64 bytes of params"),
    (("params", 32, 33, True), "[2][0][2] is 33; it must be a part within the 64 bytes of params"),
    (("arena", 64, 1, True), "[2][0][2] is 1; it must be a part within the 64 bytes of arena"),
]


def test_places_beyond_their_space() -> None:
    for place, message in PLACES_BEYOND:
        assert refused(on_a_device([place])) == f"functions[0].launches[0]{message}"


def test_a_bool_may_have_up_to_four_bytes() -> None:
    flags = TensorSpec("x", (2, 4), boolean)
    check_program(on_a_device([("inputs", 0, 32, False)], x=flags))
    assert "no more than its tensor takes" in refused(on_a_device([("inputs", 0, 33, False)],
                                                                  x=flags))


def test_kernels_of_launches() -> None:
    place = [("arena", 0, 4, True)]
    assert refused(on_a_device(place, entry=1)).startswith(
        "functions[0].launches[0][0] is 1; it must be the number of one of 1 kernels")
    assert "a kernel whose code takes such a grid" in refused(on_a_device(place, wrong_name=True))
    spec = on_a_device(place)
    twice = spec.replace(entries=spec.entries * 2)
    assert refused(twice).startswith("entries[1][0] is 'k0_")
    assert "a list of kernels for a device" in refused(spec.replace(entries=()))
    assert "and empty for a CPU" in refused(program(entries=spec.entries))


def test_devices_may_place_states_far_apart() -> None:
    place = [("arena", 0, 4, True)]
    check_program(on_a_device(place, params=4096))
    assert "no more than its states" in refused(on_a_device(place, params=4097))


@pytest.mark.parametrize(("d", "precision"), [(f16, "float32"), (f32, "tf32")])
def test_tensor_maps(d: DType, precision: str) -> None:
    """A program whose kernels copy boxes, of each dtype, is read as it was; boxes stay within their buffers."""
    x, w = leaf("input", "x/a", (1024, 1024), d), leaf("input", "x/b", (1024, 1024), d)
    graph = Graph({"y": ops.matmul(x, ops.transpose(w))})
    made = compile_functions({CALL: graph}, target("cuda:sm_90a").with_precision(precision), "product")
    packed = unpack(pack(made.spec, made.code, []))
    assert made.spec.maps and packed is not None and packed[0] == made.spec
    check_program(made.spec)
    value = made.spec.to_json()
    value["maps"][0][4][0] += 1  # one more element in each row
    with pytest.raises(BadValue, match="a kernel whose maps are in its memories"):
        check_program(ProgramSpec.from_json(json.loads(json.dumps(value))))
