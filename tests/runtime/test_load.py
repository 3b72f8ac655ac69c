"""Each way in which a file can be wrong has its own message."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import ztorch as zt
from tests.cases.artifacts import (
    Manifest,
    apart,
    changed,
    together,
    whole,
)
from tests.runtime.damaged import refuse, spec
from ztorch.errors import ArtifactError, DeviceError
from ztorch.files.container import MANIFEST, RIGHTS
from ztorch.host import processor
from ztorch.runtime.load import open_artifact, read_artifact
from ztorch.runtime.manifest import OLDEST, VERSION

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


def test_files_that_are_no_artifacts(tmp_path: Path) -> None:
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
    (b"", "not a ztorch artifact: it starts with nothing"),
    (b"\x7fELF" + bytes(200), "not a ztorch artifact: it starts with 7f 45 4c 46"),
    (whole()[:-1], "is truncated"),
    (whole()[:-5000], "is truncated"),
    (whole() + b"\n", "has bytes after its end"),
    (stored((MANIFEST, b"{}"), comment=b""), "packed by another tool"),
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
    refuse(tmp_path, out.getvalue(), "packed by another tool")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(tmp_path: Path) -> None:
    refuse(tmp_path, stored((MANIFEST, b"{}"), (MANIFEST, b"{}")), "has two members named")


def test_compression_bombs_are_refused(tmp_path: Path) -> None:
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
           "it has bytes that belong to no member")


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
     "weights.safetensors is not a complete safetensors file"),
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


def test_errors_name_a_newer_format(tmp_path: Path) -> None:
    def newer(m: Manifest) -> None:
        m.update(version=VERSION + 1, ztorch="9.1", files="something else")
    refuse(tmp_path, changed(newer), rf"format version {VERSION + 1}, written by ztorch 9\.1; this "
                                     f"ztorch reads versions {OLDEST} to {VERSION}: install a newer")


def test_errors_name_an_older_format(tmp_path: Path) -> None:
    """Its code would be called in another way."""
    refuse(tmp_path, changed(lambda m: m.update(version=1)),
           f"format version 1, .* reads versions {OLDEST} to {VERSION}: export it again")


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
    (lambda m: m["program"].update(name=7), "program.name is 7; it must be a string"),
    (lambda m: m["program"].update(layers=[1]), r"program.layers\[0\] is 1; it must be an object"),
    (lambda m: m["program"].update(loss="mse"), "program.loss is 'mse'; it must be an object"),
])
def test_manifests(tmp_path: Path, change: Callable[[Manifest], object], message: str) -> None:
    refuse(tmp_path, changed(change), message)


# -- machines --------------------------------------------------------------------------------------


def test_code_for_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(tmp_path, changed(lambda m: spec(m).update(arch="aarch64")),
           r"does not run on this machine .*cpu:scalar is for aarch64 processors", DeviceError)
    refuse(tmp_path, changed(lambda m: spec(m).update(needs=["avx9000"])),
           r"cpu:scalar needs avx9000\. Export it again", DeviceError)
    assert open_artifact(tmp_path / "bad.zt").targets[0].refusal() != ""
    monkeypatch.setattr(processor, "memory_bytes", lambda: 100)
    refuse(tmp_path, whole(), "claims .* bytes to run, more than the 100 of this machine")


def test_the_target_for_this_machine_is_chosen(tmp_path: Path) -> None:
    manifest, files = apart(whole())
    foreign = json.loads(json.dumps(manifest["targets"][0]))
    foreign["spec"].update(arch="riscv64", target="rvv")
    manifest["targets"].insert(0, foreign)
    (tmp_path / "fat.zt").write_bytes(together(manifest, files))
    assert read_artifact(tmp_path / "fat.zt").spec.target == "scalar"
