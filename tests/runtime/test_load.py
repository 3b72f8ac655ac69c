"""Each way in which a file can be wrong has its own message."""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ztorch as zt
from tests.cases.artifacts import (
    Manifest,
    apart,
    changed,
    together,
    trainer,
    whole,
)
from ztorch.errors import ArtifactError, DeviceError
from ztorch.files.container import MANIFEST, RIGHTS
from ztorch.host import processor
from ztorch.runtime.load import open_artifact, read_artifact
from ztorch.runtime.manifest import OLDEST, VERSION
from ztorch.runtime.spec import TensorSpec, entry_point


def refuse(tmp_path: Path, data: bytes, message: str,
           error: type[Exception] = ArtifactError) -> None:
    path = tmp_path / "bad.zt"
    path.write_bytes(data)
    with pytest.raises(error, match=message) as caught:
        zt.load(path)
    assert "bad.zt" in str(caught.value) and len(str(caught.value)) < 600


# -- the container ---------------------------------------------------------------------------------


def stored(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED,
           comment: bytes = b"0" * 64) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.comment = comment
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = RIGHTS
            archive.writestr(info, data, compress_type=method)
    return out.getvalue()


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"cannot read .*No such file.*check the path"):
        zt.load(tmp_path / "nothing.zt")
    with pytest.raises(ArtifactError, match="is a folder"):
        zt.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArtifactError, match="not a regular file"):
        zt.load(tmp_path / "pipe")
    with pytest.raises(ArtifactError, match="not a regular file"):
        zt.load("/dev/zero")


@pytest.mark.parametrize(("data", "message"), [
    (b"", "not a ztorch artifact: it begins with nothing"),
    (b"\x7fELF" + bytes(200), "not a ztorch artifact: it begins with 7f 45 4c 46"),
    (whole()[:-1], "is truncated"),
    (whole()[:-5000], "is truncated"),
    (whole() + b"\n", "something was appended"),
    (stored((MANIFEST, b"{}"), comment=b""), "another tool packed it"),
    (stored((MANIFEST, b"{}")), "the hash of its member manifest.json is not the one in its seal"),
    (stored(("a", b"{}")), "has no member manifest.json"),
    (stored((MANIFEST, b"{}"), method=zipfile.ZIP_DEFLATED), "is compressed or encrypted"),
    (stored((MANIFEST, b"{}"), ("../../etc/passwd", b"x")), r"named '\.\./\.\./etc/passwd'"),
    (stored((MANIFEST, b"{}"), ("/etc/passwd", b"x")), "named '/etc/passwd'"),
    (stored((MANIFEST, b"{}"), ("code/..", b"x")), r"named 'code/\.\.'"),
    (stored((MANIFEST, b"{}"), ("a\\b", b"x")), "which no artifact has"),
    (stored((MANIFEST, b"{}"), ("c:", b"x")), "which no artifact has"),
    (stored((MANIFEST, b"{}"), ("x" * 5000, b"x")), "which no artifact has"),
    (stored(*((f"m{k}", b"") for k in range(300))), "claims 300 members"),
])
def test_containers(tmp_path: Path, data: bytes, message: str) -> None:
    refuse(tmp_path, data, message)


def test_another_tool_packed_it(tmp_path: Path) -> None:
    """With the same members and the same comment."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole())) as old, zipfile.ZipFile(out, "w") as new:
        new.comment = old.comment
        for name in old.namelist():
            new.writestr(zipfile.ZipInfo(name), old.read(name))
    refuse(tmp_path, out.getvalue(), "another tool packed it")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(tmp_path: Path) -> None:
    refuse(tmp_path, stored((MANIFEST, b"{}"), (MANIFEST, b"{}")), "has two members named")


def test_a_bomb_does_not_go_off(tmp_path: Path) -> None:
    """Neither the compressed kind, nor sizes that the file only claims."""
    bomb = stored((MANIFEST, bytes(100 << 20)), method=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 1 << 20
    refuse(tmp_path, bomb, "compressed")
    at = whole().rfind(b"PK\1\2")
    for field in (20, 24):  # compressed, uncompressed
        data = bytearray(whole())
        data[at + field:at + field + 4] = b"\xff\xff\xff\xff"
        refuse(tmp_path, bytes(data), "two sizes")
    data = bytearray(whole())
    data[at + 20:at + 28] = b"\xff\xff\xff\x7f" * 2
    refuse(tmp_path, bytes(data), r"member 'code/scalar.so' of 2147483647 bytes is not at")


def test_a_huge_manifest(tmp_path: Path) -> None:
    refuse(tmp_path, together(b"[" * (17 << 20), {}), "at most 16777216 are read")


def test_bytes_between_members(tmp_path: Path) -> None:
    data = whole()
    at = data.index(b"PK\3\4", 4)
    refuse(tmp_path, data[:at] + b"secret" + data[at:], "directory of|is not at")


def test_bytes_between_the_last_member_and_the_directory(tmp_path: Path) -> None:
    """The end record has the new offset of the directory, so only the gap is wrong."""
    data = bytearray(whole())
    end = len(data) - 64 - 22
    start = int.from_bytes(data[end + 16:end + 20], "little")
    data[end + 16:end + 20] = (start + 6).to_bytes(4, "little")
    refuse(tmp_path, bytes(data[:start] + b"secret" + data[start:]),
           "it holds bytes that belong to no member")


# -- the manifest and its members ------------------------------------------------------------------


def with_files(change: Callable[[dict[str, bytes]], object], rehash: bool = False) -> bytes:
    manifest, files = apart(whole())
    change(files)
    return together(manifest, files, rehash)


def flipped(files: dict[str, bytes]) -> None:
    code = bytearray(files["code/scalar.so"])
    code[len(code) // 2] ^= 1
    files["code/scalar.so"] = bytes(code)


@pytest.mark.parametrize(("data", "message"), [
    (with_files(lambda f: f.pop("code/scalar.so")), "lacks the member 'code/scalar.so'"),
    (with_files(lambda f: f.pop("weights.safetensors")), "lacks the member 'weights.safetensors'"),
    (with_files(lambda f: f.pop("weights.safetensors"), True), "has no member 'weights"),
    (with_files(lambda f: f.update(extra=b"1")), "member 'extra' that its manifest does not list"),
    (with_files(lambda f: f.update({"code/scalar.so": f["code/scalar.so"][:-1]})),
     r"member 'code/scalar.so' has \d+ bytes, its manifest says \d+"),
    (with_files(flipped), "member 'code/scalar.so' is damaged: its hash"),
    (with_files(flipped, True), "damaged library: its contents do not match its own hash"),
    (with_files(lambda f: f.update({"weights.safetensors": b"x" * 50}), True),
     "weights.safetensors is not a whole safetensors file"),
    (together(b"{", {}), "manifest.json is not JSON"),
    (together(b'{"a": 1, "a": 2}', {}), "a key occurs twice"),
    (together(b'{"a": NaN}', {}), "NaN is not a JSON number"),
    (together(b"[" * 100_000 + b"]" * 100_000, {}), "manifest.json is not JSON"),
    (together(b'{"a": 1' + b"0" * 10_000 + b"}", {}), "manifest.json is not JSON"),
    (together(b"\xff\xfe", {}), "manifest.json is not JSON"),
    (together(b"[]", {}), r"the whole is \[\]; it must be an object"),
    (together(b'{"format": "other"}', {}), "format is 'other'; it must be 'ztorch artifact'"),
])
def test_members(tmp_path: Path, data: bytes, message: str) -> None:
    refuse(tmp_path, data, message)


def test_a_newer_format_is_said_to_be_newer(tmp_path: Path) -> None:
    def newer(m: Manifest) -> None:
        m.update(version=VERSION + 1, ztorch="9.1", files="something else")
    refuse(tmp_path, changed(newer), rf"format version {VERSION + 1}, written by ztorch 9\.1; this "
                                     f"ztorch reads versions {OLDEST} to {VERSION}: install a newer")


def test_an_older_format_is_said_to_be_older(tmp_path: Path) -> None:
    """Its code would be called in another way."""
    refuse(tmp_path, changed(lambda m: m.update(version=1)),
           f"format version 1, .* reads versions {OLDEST} to {VERSION}: export it again")


def spec(m: Manifest) -> dict[str, Any]:
    return m["targets"][0]["spec"]


@pytest.mark.parametrize(("change", "message"), [
    (lambda m: m.pop("targets"), "targets is missing; it must be a list"),
    (lambda m: m.update(targets=[]), "at least one target"),
    (lambda m: m.pop("program"), "program.name is missing|program is missing"),
    (lambda m: m["files"].update(x=3), r"files.x is 3; it must be an object"),
    (lambda m: m["files"]["code/scalar.so"].update(size=-1), "size is -1; it must be an integer"),
    (lambda m: m["files"]["code/scalar.so"].update(sha256="00"), "must be a SHA-256"),
    (lambda m: m["targets"][0].update(code="code/none.so"), "code is 'code/none.so'; it must be "
                                                            "the name of a member"),
    (lambda m: m["targets"][0].update(constants="code/scalar.so"), "a member of 0 bytes"),
    (lambda m: spec(m).update(target="../x"), "it must be the name of a target"),
    (lambda m: spec(m)["states"][0].update(offset=-64), r"states\[0\].offset is -64"),
    (lambda m: spec(m)["states"][0].update(offset=8), r"states\[0\].offset is 8; .*multiple of 64"),
    (lambda m: spec(m)["states"][0].update(offset=1 << 20), r"states\[0\].offset is 1048576"),
    (lambda m: spec(m)["states"][3].update(offset=spec(m)["params_bytes"]), r"states\[3\].offset "
                                                             r"is \d+; it must be an offset from"),
    (lambda m: spec(m)["states"][1].update(offset=0), "they overlap"),
    (lambda m: spec(m)["states"][0].update(shape=[4, -6]), r"shape\[1\] is -6; .*integer"),
    (lambda m: spec(m)["states"][0].update(shape=[4, 1 << 50]), r"shape\[1\] is \d+; .*integer"),
    (lambda m: spec(m)["states"][0].update(shape=[1 << 30, 1 << 30]), "at most 1099511627776 byt"),
    (lambda m: spec(m)["states"][0].update(shape=[4.0, 6]), r"shape\[0\] is 4.0; .*integer"),
    (lambda m: spec(m)["states"][0].update(shape=[True, 6]), r"shape\[0\] is True; .*integer"),
    (lambda m: spec(m)["states"][0].update(shape="46"), "shape is '46'; it must be a list"),
    (lambda m: spec(m)["states"][0].update(shape=[1] * 20), "at most 16 axes"),
    (lambda m: spec(m)["states"][0].update(shape=[6, 4]), r"of shape \(4, 6\), the manifest says "
                                                          r"float32 of shape \(6, 4\)"),
    (lambda m: spec(m)["states"][0].update(dtype="int32"), "the manifest says int32"),
    (lambda m: spec(m)["states"][0].update(dtype="object"), "dtype is 'object'; it must be a"),
    (lambda m: spec(m)["states"][0].update(dtype=["f"]), r"dtype is \['f'\]; it must be a dtype"),
    (lambda m: spec(m)["states"][0].update(name="other"), "lacks the state 'other'"),
    (lambda m: spec(m)["states"][1].update(name="hidden/kernel"), "a name that occurs once"),
    (lambda m: spec(m).update(params_bytes=spec(m)["states"].pop()["offset"]),
     "symbol is 'zt_predict_.*for code that takes the inputs, outputs, params and arena"),
    (lambda m: spec(m)["states"].pop(), "no more than its states and constants take"),
    (lambda m: spec(m).update(params_bytes=1 << 39), "no more than its states and constants take"),
    (lambda m: spec(m).update(params_bytes=1 << 50), "params_bytes is \\d+; it must be an integer"),
    (lambda m: spec(m).update(arena_bytes=1 << 39), "symbol is 'zt_predict_.*for code that takes"),
    (lambda m: spec(m).update(arena_bytes="64"), "arena_bytes is '64'"),
    (lambda m: spec(m).update(constants=[[0, 4]]), "they overlap"),
    (lambda m: spec(m).update(constants=[[0, 4, 4]]), r"must be \[offset, bytes\]"),
    (lambda m: spec(m)["functions"].clear(), "a list with a function 'predict'"),
    (lambda m: spec(m)["functions"][0].update(symbol="system"), "symbol is 'system'; it must be a "
                                                                "symbol such as"),
    (lambda m: spec(m)["functions"][0].update(symbol="zt_worker"), "symbol is 'zt_worker'"),
    (lambda m: spec(m)["functions"][0].update(symbol="zt_x\n"), r"symbol is 'zt_x\\n'"),
    (lambda m: spec(m)["functions"][0].update(symbol="zt_other"), "it must be 'zt_predict_"),
    (lambda m: spec(m)["functions"][0].update(inputs=[]), "it must be the inputs x"),
    (lambda m: spec(m)["functions"][0].update(outputs=[]), "a list with y"),
    (lambda m: spec(m)["functions"][0]["inputs"][0].update(shape=[]), "begins with the batch size"),
    (lambda m: spec(m)["functions"][0].update(cycles=-1), "cycles is -1; it must be a number"),
    (lambda m: spec(m)["functions"].append(spec(m)["functions"][0]), "a name that occurs once"),
    (lambda m: m["program"].update(seed=-1), "program.seed is -1"),
    (lambda m: m["program"].update(name=7), "program.name is 7; it must be a text"),
    (lambda m: m["program"].update(layers=[1]), r"program.layers\[0\] is 1; it must be an object"),
    (lambda m: m["program"].update(loss="mse"), "program.loss is 'mse'; it must be an object"),
])
def test_manifests(tmp_path: Path, change: Callable[[Manifest], object], message: str) -> None:
    refuse(tmp_path, changed(change), message)


# -- sizes that the code relies on -----------------------------------------------------------------


@cache
def saved(several: bool) -> bytes:
    """An artifact that trains; of one input and output, or of several of other dtypes."""
    if not several:
        program = trainer()
    else:
        a, b = zt.layers.Input((4,), name="a"), zt.layers.Input((3,), dtype="int32", name="b")
        words = zt.layers.Flatten()(zt.layers.Embedding(7, 2)(b))
        y = zt.layers.Dense(2, name="y")(zt.layers.Concatenate()([a, words]))
        program = zt.Model([a, b], [y, zt.layers.Dense(3, name="z")(a)], name="two").compile(
            "cpu:scalar", batch_size=4, optimizer="adam", loss="mse")
    with tempfile.TemporaryDirectory() as folder:
        program.save(Path(folder) / "t.zt")
        return (Path(folder) / "t.zt").read_bytes()


def renamed(manifest: Manifest, files: dict[str, bytes]) -> bytes:
    """An artifact whose code has the symbols that the manifest requires, for any sizes in it."""
    found = spec(manifest)
    code = files["code/scalar.so"]
    for f in found["functions"]:
        inputs, outputs = ([TensorSpec.from_json(t) for t in f[k]] for k in ("inputs", "outputs"))
        symbol = entry_point(f["name"], inputs, outputs, found["params_bytes"],
                             found["arena_bytes"])
        code = code.replace(f["symbol"].encode(), symbol.encode())
        f["symbol"] = symbol
    return together(manifest, {**files, "code/scalar.so": code})


@pytest.mark.parametrize("several", (False, True))
def test_no_tensor_is_of_another_size_than_the_code_takes(several: bool, tmp_path: Path) -> None:
    """Smaller is what code would write over; larger, or of another dtype, is as wrong."""
    functions = spec(apart(saved(several))[0])["functions"]
    assert len(functions) == 3
    for number, f in enumerate(functions):
        for which in ("inputs", "outputs"):
            assert f[which]
            for k in range(len(f[which])):
                lie_about(several, number, which, k, tmp_path)


def lie_about(several: bool, function: int, which: str, k: int, tmp_path: Path) -> None:
    def one(m: Manifest) -> dict[str, Any]:
        return spec(m)["functions"][function][which][k]

    shape, d = (one(apart(saved(several))[0])[key] for key in ("shape", "dtype"))
    lies: list[dict[str, Any]] = [{"shape": [*shape[:-1], n]}
                                  for n in ((shape[-1:] or [1])[0] + 1, 1 << 20)]
    lies += [{"shape": [*shape[:-1], shape[-1] - 1]}] if shape and shape[-1] > 1 else []
    lies += [{"shape": shape[::-1]}] if shape != shape[::-1] else []
    lies.append({"dtype": "uint8" if d != "uint8" else "bool"})
    for lie in lies:
        manifest, files = apart(saved(several))
        one(manifest).update(lie)
        refuse(tmp_path, together(manifest, files, rehash=False),
               r"symbol is 'zt_\w+'; it must be 'zt_\w+', for code that takes the inputs, outputs")


@pytest.mark.parametrize("change", [
    lambda m: spec(m)["functions"][0]["inputs"].reverse(),
    lambda m: spec(m)["functions"][-1]["outputs"].pop(),
    lambda m: spec(m).update(arena_bytes=0),
    lambda m: spec(m).update(arena_bytes=spec(m)["arena_bytes"] + 64),
    lambda m: spec(m)["functions"][0].update(symbol=spec(m)["functions"][1]["symbol"]),
], ids=["swapped inputs", "an output less", "no arena", "a larger arena", "another function"])
def test_no_function_is_handed_other_memory(change: Callable[[Manifest], object],
                                            tmp_path: Path) -> None:
    refuse(tmp_path, changed(change, saved(True)), "symbol is 'zt_.*it must be 'zt_")


@cache
def on_a_device() -> bytes:
    """An artifact whose code is kernels: it trains, on the device that computes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        trainer("dummy").save(Path(folder) / "t.zt")
        return (Path(folder) / "t.zt").read_bytes()


def launches(m: Manifest) -> list[list[Any]]:
    return [launch for f in spec(m)["functions"] for launch in f["launches"]]


def other_kernel(m: Manifest) -> None:
    first = launches(m)[0]
    first[0] = next(x[0] for x in launches(m) if x[1:3] != first[1:3])


@pytest.mark.parametrize("change", [
    lambda m: launches(m)[0][2][0].__setitem__(2, launches(m)[0][2][0][2] - 4),
    lambda m: launches(m)[0][2][-1].__setitem__(2, 1),
    lambda m: launches(m)[0][2][-1].__setitem__(3, not launches(m)[0][2][-1][3]),
    lambda m: launches(m)[0][2].pop(),
    lambda m: launches(m)[-1][1].__setitem__(0, launches(m)[-1][1][0] + 1),
    lambda m: spec(m)["entries"][launches(m)[0][0]][3].__setitem__(0, 1),
    lambda m: spec(m)["entries"][launches(m)[0][0]].__setitem__(0, "other"),
    other_kernel,
], ids=["a byte less", "a byte in all", "written or not", "a memory less", "a larger grid",
        "fewer threads", "another name", "another kernel"])
def test_no_kernel_is_handed_other_memory(change: Callable[[Manifest], object],
                                          tmp_path: Path) -> None:
    (tmp_path / "right.zt").write_bytes(on_a_device())
    read_artifact(tmp_path / "right.zt")
    refuse(tmp_path, changed(change, on_a_device()), r"launches\[\d+\]\[0\] is \d+; it must be the "
           r"number of a kernel whose code takes such a grid and such memories; '\w+' does not")


def test_kernels_lie_within_the_code(tmp_path: Path) -> None:
    """The last one ends where the code does."""
    manifest, files = apart(on_a_device())
    last = len(spec(manifest)["entries"]) - 1
    _, start, size, _ = spec(manifest)["entries"][last]
    assert start + size == len(files["code/dummy.bin"])
    message = rf"targets\[0\]\.spec\.entries\[{last}\]\[2\] is \d+; it must be a part of the \d+ bytes"
    for key in (1, 2):
        def further(m: Manifest, key: int = key) -> None:
            spec(m)["entries"][last][key] += 1
        refuse(tmp_path, changed(further, on_a_device()), message)


def test_constants_are_as_long_as_the_spec_says(tmp_path: Path) -> None:
    """Beside the states of a program that has none of its own."""
    def with_constants(nbytes: int) -> bytes:
        manifest, files = apart(whole())
        start = spec(manifest)["params_bytes"]
        spec(manifest).update(constants=[[start, 40], [start + 64, 7]], params_bytes=start + 128)
        manifest["targets"][0]["constants"] = "constants/scalar.bin"
        return renamed(manifest, {**files, "constants/scalar.bin": bytes(range(nbytes))})

    (tmp_path / "right.zt").write_bytes(with_constants(47))
    artifact = open_artifact(tmp_path / "right.zt")
    params, (first, second) = (artifact.params(artifact.targets[0]),
                               artifact.targets[0].spec.constants)
    assert params[first[0]:first[0] + 40].tolist() == list(range(40))
    assert params[second[0]:second[0] + 7].tolist() == list(range(40, 47))
    for nbytes in (0, 46, 48):
        refuse(tmp_path, with_constants(nbytes), r"targets\[0\]\.constants is 'constants/scalar.bin'; "
                                                 "it must be the name of a member of 47 bytes")


def test_code_without_the_symbol_is_not_called(tmp_path: Path) -> None:
    """Where the manifest lies about sizes and says the symbol for them, too."""
    manifest, files = apart(whole())
    spec(manifest)["functions"][0]["inputs"][0].update(shape=[2, 2])
    refuse(tmp_path, renamed(manifest, files), "its contents do not match its own hash")
    refuse(tmp_path, together(manifest, files), "a symbol of code/scalar.so")


def test_what_a_program_claims_is_asked_of_the_machine(tmp_path: Path) -> None:
    manifest, files = apart(whole())
    spec(manifest)["arena_bytes"] = 1 << 39
    refuse(tmp_path, renamed(manifest, files), r"claims 549,\d+,\d+,\d+ bytes to run")


def test_states_are_those_of_the_weights(tmp_path: Path) -> None:
    manifest, files = apart(whole())
    spec(manifest)["params_bytes"] = spec(manifest)["states"].pop()["offset"]
    refuse(tmp_path, renamed(manifest, files), "holds 'out/bias', which the manifest does not list")


@pytest.mark.parametrize(("change", "message"), [
    ({"epoch": "x"}, r"training\.epoch is 'x'; it must be an integer from 0"),
    ({"epoch": -5}, r"training\.epoch is -5; it must be an integer from 0"),
    ({"seed": 1 << 64}, r"training\.seed is \d+; it must be an integer from 0"),
    ({"resumed": 1}, r"training\.resumed is 1; it must be true or false"),
    ({"version": 2}, r"training\.version is 2"),
    ({"history": []}, r"training\.history is \[\]; it must be an object"),
    ({"history": {"history": {"loss": ["x"]}, "epoch": [0], "epochs_of": {"loss": [0]}}},
     r"training\.history\.history\.loss\[0\] is 'x'; it must be a number, or one of 'nan'"),
    ({"history": {"history": {"loss": [1.0]}, "epoch": [0], "epochs_of": {}}},
     r"training\.history\.epochs_of\.loss is \[\]; it must be as many epochs as the metric"),
])
def test_where_training_stood(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    refuse(tmp_path, changed(lambda m: m["training"].update(change), saved(False)), message)


def test_training_is_an_object_that_is_whole(tmp_path: Path) -> None:
    refuse(tmp_path, changed(lambda m: m.update(training=3)), "training is 3; it must be an object")
    for key in ("version", "epoch", "passes", "seed", "history"):
        refuse(tmp_path, changed(lambda m, key=key: m["training"].pop(key), saved(False)),
               rf"training\.{key} is missing; it must be")


# -- machines --------------------------------------------------------------------------------------


def test_code_for_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(tmp_path, changed(lambda m: spec(m).update(arch="aarch64")),
           r"does not run on this machine .*cpu:scalar is for aarch64 processors", DeviceError)
    refuse(tmp_path, changed(lambda m: spec(m).update(needs=["avx9000"])),
           r"cpu:scalar needs avx9000\. Export it again", DeviceError)
    assert open_artifact(tmp_path / "bad.zt").targets[0].refusal() != ""
    monkeypatch.setattr(processor, "memory_bytes", lambda: 100)
    refuse(tmp_path, whole(), "claims .* bytes to run, more than the 100 of this machine")


def test_the_target_that_runs_here_is_taken(tmp_path: Path) -> None:
    manifest, files = apart(whole())
    foreign = json.loads(json.dumps(manifest["targets"][0]))
    foreign["spec"].update(arch="riscv64", target="rvv")
    manifest["targets"].insert(0, foreign)
    (tmp_path / "fat.zt").write_bytes(together(manifest, files))
    assert read_artifact(tmp_path / "fat.zt").spec.target == "scalar"
