"""Loops and moves of a file that lies: an error that names the field, before anything runs."""

from __future__ import annotations

import copy
import json
import random
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ztorch as zt
from tests.cases.artifacts import Manifest, apart, changed, together
from tests.cases.available import device
from ztorch.backends.device import Device
from ztorch.backends.handles import Recording
from ztorch.dtypes import f32
from ztorch.errors import ArtifactError
from ztorch.files.kinds import BadValue
from ztorch.runtime.load import read_artifact
from ztorch.runtime.loops import MAX_BINDINGS, MAX_DEPTH, MAX_RUNS
from ztorch.runtime.program_checks import check_program
from ztorch.runtime.remote import Remote
from ztorch.runtime.spec import (
    MAX_BYTES,
    MAX_LOOPS,
    FunctionSpec,
    LaunchSpec,
    ProgramSpec,
    TensorSpec,
    entry_point,
    kernel_name,
)

ARENA = 4096  # bytes
Loops = list[tuple[int, int, int]]
Moves = list[tuple[int, int, int, int]]
FOUR = [("arena", 1024, 64, True)]  # the places of each of four launches


def on_a_device(loops: Loops, moves: Moves = [], places: Any = FOUR, count: int = 4,  # noqa: B006
                kernels: int | None = None) -> ProgramSpec:
    """A program of `count` launches of one kernel; `kernels` of them are named."""
    launch = LaunchSpec(0, (1, 1, 1), tuple(places), True)
    name = kernel_name("k0", (8, 1, 1), launch.grid, launch.places)
    x, y = TensorSpec("x", (2, 4), f32), TensorSpec("y", (2, 3), f32)
    predict = FunctionSpec(
        "predict", entry_point("predict", [x], [y], 0, ARENA), {"x": x}, {"y": y}, 1.0,
        (("k0", 1.0),) * (count if kernels is None else kernels), (), (launch,) * count,
        tuple(loops), tuple(moves))
    return ProgramSpec("net", "dummy", "", (), {"predict": predict}, {}, 0, ARENA, (), ("k0",),
                       "dummy", ((name, 0, 10, (8, 1, 1)),))


def on_a_cpu(loops: Loops, count: int = 4) -> ProgramSpec:
    spec = on_a_device(loops, count=count)
    predict = spec.functions["predict"].replace(launches=())
    return spec.replace(backend="cpu", target="scalar", entries=(), functions={"predict": predict})


ALLOWED: list[tuple[Loops, Moves]] = [
    ([], []), ([(0, 4, 5)], []), ([(0, 2, 3), (2, 4, 3)], []),  # one after the other
    ([(0, 4, 3), (0, 4, 3), (1, 3, 2)], []),  # inside one another, also with the same ends
    ([(0, 4, MAX_RUNS // 4)], []),
    ([(0, 4, 2)] * MAX_DEPTH, []),
    ([(0, 4, 48)], [(0, 0, 0, 64)]),  # 1024 + 47 * 64 + 64 bytes: the end of the arena
    ([(0, 4, 17)], [(3, 0, 0, -64)]),  # its start
    ([(0, 4, 17), (1, 2, 33)], [(1, 0, 0, -64), (1, 0, 1, 64)]),  # both ways
    ([(0, 1, 1)], [(0, 0, 0, MAX_BYTES)]),  # a loop of one turn moves nothing
]


def test_loops_and_moves_that_fit() -> None:
    for loops, moves in ALLOWED:
        check_program(on_a_device(loops, moves))
        check_program(on_a_cpu(loops))


def test_launches_advance_by_the_bytes_of_each_iteration() -> None:
    spec = on_a_device([(0, 4, 3), (1, 2, 2)], [(1, 0, 0, -64), (1, 0, 1, 256)])
    program: Any = SimpleNamespace(buffer=lambda space: space)
    launches = Remote.launches(program, spec.functions["predict"], {})
    moved = [launch.bindings[0].at for k, launch in launches if k == 1]
    assert moved == [1024 - 64 * outer + 256 * inner for outer in range(3) for inner in range(2)]


CROSSED: list[tuple[Loops, str]] = [
    ([(0, 3, 2), (1, 4, 2)], "loops[1][1] is 4; it must be at most 3, where loop 0 around it ends"),
    ([(0, 4, 2), (0, 2, 2), (1, 3, 2)], "loops[2][1] is 3; it must be at most 2, where loop 1"),
    ([(1, 2, 2), (0, 4, 2)], "loops[1][0] is 0; it must be after the loops before it, outer ones"),
    ([(0, 2, 2), (0, 4, 2)], "loops[1][0] is 0; it must be after the loops before it, outer ones"),
    ([(2, 2, 2)], "loops[0][1] is 2; it must be above 2, and at most 4"),
    ([(3, 2, 2)], "loops[0][1] is 2; it must be above 3, and at most 4"),
    ([(0, 5, 2)], "loops[0][1] is 5; it must be above 0, and at most 4"),
    ([(0, 4, 1), (4, 5, 2)], "loops[1][1] is 5; it must be above 4, and at most 4"),
    ([(0, 4, 1)] * (MAX_DEPTH + 1), f"loops[{MAX_DEPTH}] is [0, 4, 1]; it must be inside at most "),
]


def refused(spec: ProgramSpec) -> str:
    with pytest.raises(BadValue) as caught:
        check_program(spec)
    return str(caught.value)


def test_loops_that_cross_or_end_beyond_the_kernels() -> None:
    for loops, message in CROSSED:
        assert refused(on_a_device(loops)).startswith(f"functions[0].{message}"), loops
        assert refused(on_a_cpu(loops)).startswith(f"functions[0].{message}"), loops


WRONG_MOVES: list[tuple[Moves, str]] = [
    ([(4, 0, 0, 64)], "moves[0][0] is 4; it must be the number of one of 4 launches"),
    ([(1, 0, 0, 0), (1, 1, 0, 64)], "moves[1][1] is 1; it must be the number of one of 1 places"),
    ([(1, 0, 2, 64)], "moves[0][2] is 2; it must be the number of a loop around launch 1"),
    ([(0, 0, 1, 64)], "moves[0][2] is 1; it must be the number of a loop around launch 0"),
    ([(1, 0, 1, 1), (1, 0, 1, 1)], "moves[1] is [1, 0, 1]; it must be moved once by each loop"),
    ([(1, 0, 0, 3009)], "launches[1][2][0][2] is 64; it must be a part within the 4096 bytes"),
    ([(1, 0, 0, -1025)], "launches[1][2][0][2] is 64; it must be a part within the 4096 bytes"),
    ([(1, 0, 0, MAX_BYTES)], "launches[1][2][0][2] is 64; it must be a part within the 4096 b"),
    ([(1, 0, 0, 1000), (1, 0, 1, 5)], "launches[1][2][0][2] is 64; it must be a part within"),
    ([(1, 0, 0, -1000), (1, 0, 1, -13)], "launches[1][2][0][2] is 64; it must be a part within"),
]


def test_moves_of_nothing_and_moves_out_of_the_arena() -> None:
    """Loop 0 has two turns, loop 1, around launch 1 alone, a thousand."""
    loops = [(0, 4, 2), (1, 2, 1000)]
    for moves, message in WRONG_MOVES:
        assert refused(on_a_device(loops, moves)).startswith(f"functions[0].{message}"), moves


def test_inputs_and_outputs_do_not_move() -> None:
    for space in ("inputs", "outputs"):
        assert refused(on_a_device([(0, 4, 2)], [(0, 0, 0, 4)], [(space, 0, 4, False)])).startswith(
            "functions[0].moves[0][1] is 0; it must be a place in params or the arena")


def test_params_end_where_they_end() -> None:
    """A place in params that stays there does not, once it moves."""
    places = [("params", 0, 64, False)]
    assert "within the 0 bytes of params" in refused(on_a_device([(0, 4, 2)], places=places))


def test_runs_are_bounded_for_any_kernel_names() -> None:
    huge = MAX_BYTES
    for loops in ([(0, 4, MAX_RUNS // 4 + 1)], [(0, 4, huge)] * MAX_DEPTH):
        for kernels in (4, 0):
            assert f"it must be at most {MAX_RUNS} runs of kernels" in refused(
                on_a_device(loops, kernels=kernels))
    wide = FOUR * (4 * MAX_BINDINGS // MAX_RUNS)
    check_program(on_a_device([(0, 4, MAX_RUNS // 16)], places=wide))
    assert f"at most {MAX_BINDINGS} memories of all runs" in refused(
        on_a_device([(0, 4, MAX_RUNS // 16 + 1)], places=wide))


def test_long_lists_are_refused_fast() -> None:
    """Each is as long as a manifest of some megabytes can have it."""
    count = 200_000
    begun = time.process_time()
    loops = [(0, count, 1)] * MAX_DEPTH + [(k, k + 1, 1) for k in range(8)]
    check_program(on_a_cpu(sorted(loops, key=lambda loop: (loop[0], -loop[1]))[:MAX_DEPTH],
                           count))
    apart_ = [(k, k + 1, 1) for k in range(MAX_LOOPS)]
    check_program(on_a_cpu(apart_, count))
    moves = [(k, 0, 0, 0) for k in range(20_000)]
    check_program(on_a_device([(0, 20_000, 1)], moves, count=20_000))
    assert time.process_time() - begun < 20


# -- whole files -----------------------------------------------------------------------------------


@cache
def looped() -> bytes:
    """An artifact for a device, whose launches are in a loop and move, forwards and backwards."""
    x = zt.layers.Input((6, 4))
    h = zt.layers.Bidirectional(zt.layers.LSTM(5))(x)
    program = zt.Model(x, zt.layers.Dense(2)(h), name="steps").compile("dummy", batch_size=3)
    with tempfile.TemporaryDirectory() as folder:
        program.save(Path(folder) / "steps.zt")
        return (Path(folder) / "steps.zt").read_bytes()


def predict(m: Manifest) -> dict[str, Any]:
    return m["targets"][0]["spec"]["functions"][0]


def test_the_file_has_the_fields_that_are_forged() -> None:
    f = predict(apart(looped())[0])
    assert len(f["loops"]) >= 1 and {stride > 0 for *_, stride in f["moves"]} == {True, False}


WRONG_VALUES = [
    ("loops", 7, r"loops is 7; it must be a list"),
    ("loops", {}, r"loops is \{\}; it must be a list"),
    ("loops", [7], r"loops\[0\] is 7; it must be a list"),
    ("loops", [[0, 1]], r"loops\[0\] is \[0, 1\]; it must be \[first kernel, kernel after the las"),
    ("loops", [[0, 1, 0]], r"loops\[0\]\[2\] is 0; it must be an integer from 1"),
    ("loops", [[0, 1, -3]], r"loops\[0\]\[2\] is -3; it must be an integer from 1"),
    ("loops", [[0, 1, 1 << 41]], r"loops\[0\]\[2\] is 2199023255552; it must be an integer from"),
    ("loops", [[0, 1, 10 ** 400]], r"loops\[0\]\[2\] is 10000"),
    ("loops", [[0, 1, 2.0]], r"loops\[0\]\[2\] is 2\.0; it must be an integer"),
    ("loops", [[0, 1, True]], r"loops\[0\]\[2\] is True; it must be an integer"),
    ("loops", [[0, "1", 2]], r"loops\[0\]\[1\] is '1'; it must be an integer"),
    ("loops", [[-1, 1, 2]], r"loops\[0\]\[0\] is -1; it must be an integer from 0"),
    ("loops", [[0, 1, 2]] * (MAX_LOOPS + 1), rf"loops is .*; it must be a list of at most {MAX_LOOPS} l"),
    ("moves", None, r"moves is None; it must be a list"),
    ("moves", [[0, 0, 0]], r"moves\[0\] is \[0, 0, 0\]; it must be \[launch, place, loop, bytes\]"),
    ("moves", [[0, 0, 0, 0.5]], r"moves\[0\]\[3\] is 0\.5; it must be an integer"),
    ("moves", [[0, 0, 0, 1 << 41]], r"moves\[0\]\[3\] is 2199023255552; it must be an integer"),
    ("moves", [[0, 0, 0, -1 << 41]], r"moves\[0\]\[3\] is -2199023255552; it must be an integer"),
    ("moves", [[0, -1, 0, 4]], r"moves\[0\]\[1\] is -1; it must be an integer from 0"),
    ("moves", [[0, 0, -1, 4]], r"moves\[0\]\[2\] is -1; it must be an integer from 0"),
    ("moves", [[10 ** 9, 0, 0, 4]], r"moves\[0\]\[0\] is 1000000000; it must be the number of one"),
]


def test_wrong_values_name_their_field(tmp_path: Path) -> None:
    path = tmp_path / "bad.zt"
    for key, value, message in WRONG_VALUES:
        path.write_bytes(changed(lambda m, key=key, value=value: predict(m).update({key: value}),
                                 looped()))
        with pytest.raises(ArtifactError, match=rf"functions\[0\]\.{message}") as caught:
            zt.load(path)
        assert "bad.zt" in str(caught.value) and len(str(caught.value)) < 600


def numbers(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where the integers of a JSON value are."""
    if type(value) is int:
        yield path
    elif isinstance(value, (list, dict)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(item, (*path, key))


def mutated(manifest: Manifest, rng: random.Random) -> Manifest:
    """A manifest in which one or two numbers of the launches are others."""
    changed_one = copy.deepcopy(manifest)
    f = predict(changed_one)
    keys = rng.choices(["loops", "moves", "moves", "launches"], k=rng.randint(1, 2))
    for key in keys:
        *path, last = rng.choice(list(numbers(f[key])))
        holder = f[key]
        for step in path:
            holder = holder[step]
        old = holder[last]
        holder[last] = rng.choice([
            0, 1, -1, old + 1, old - 1, -old, old * 2, old + 64, old - 64, old * 1000, 1 << 31,
            MAX_BYTES, rng.randrange(8), rng.randrange(1 << 12), rng.randrange(-MAX_BYTES, 0)])
    return changed_one


def test_mutated_files_are_refused_or_stay_within_their_memory(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded launches read and write inside buffers; the device's own check finds nothing."""
    manifest, files = apart(looped())
    rng, path = random.Random(0), tmp_path / "mutant.zt"
    recorded: list[int] = []

    def within(self: Any, module: Any, launches: Any) -> Recording:
        for launch in launches:
            for b in launch.bindings:
                assert b.at >= 0 and b.at + b.nbytes <= b.buffer.nbytes
        recorded.append(len(launches))
        return Recording(self, module, (), frozenset(), None)

    outcomes = {"refused": 0, "loaded": 0}
    monkeypatch.setattr(Device, "record", within)
    for _ in range(250):
        path.write_bytes(together(json.dumps(mutated(manifest, rng)).encode(), files))
        begun = time.process_time()
        try:
            snapshot = read_artifact(path)
        except ArtifactError as error:
            assert "manifest.json: targets[0].spec.functions[0]." in str(error), error
            outcomes["refused"] += 1
        else:
            remote = Remote(snapshot.spec, snapshot.code, snapshot.params, device("dummy"))
            remote.bind("predict")
            assert recorded.pop() <= MAX_RUNS
            outcomes["loaded"] += 1
        assert time.process_time() - begun < 30
    assert min(outcomes.values()) > 15, outcomes
