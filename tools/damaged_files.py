"""Reads files that were damaged, of every kind that people bring from elsewhere.

`python -m tools.damaged_files` damages 10,000, in the same ways in each run, and reads them: models
of ONNX's own tests, networks, .pt2, .keras, folders of Hugging Face, GGUF, .npz and .safetensors.
Each must be an error of ztorch that names the file, or still hold a model; it ends with 1 where one
is another exception, takes more than ten seconds or more than a GiB. `--only KIND --first K
--count 1` reads one of them again.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ztorch as zt
from tools.damage import bytes_changed, content_changed, message_changed
from tools.onnx_cases import cases, judge
from tools.onnx_tables import exceptions
from ztorch import layers as L
from ztorch.errors import ZtorchError
from ztorch.graph.op import leaf
from ztorch.host.processor import usable_cores
from ztorch.layers.context import Context

FOLDERS = Path(__file__).parent.parent / "tests" / "interchange" / "folders"
NAME = "unlucky"  # of each damaged file: a word that no message has by chance
SECONDS = 10  # of processor time, for one file
MOST_BYTES = 1 << 30
CHUNK = 25  # files that a process reads before it reports
OUTCOMES = {
    "read": "what it still holds is a model, or weights",
    "refused": "an error of ztorch that names the file",
    "nameless": "an error of ztorch that does not",
    "raw": "another exception",
    "long": f"more than {SECONDS} seconds of processor time",
    "large": "more than a GiB of memory in the process",
}


class Report(NamedTuple):
    """What became of one damaged file."""

    kind: str
    number: int
    outcome: str
    message: str
    seconds: float
    memory: int


class TooLong(BaseException):
    """Not an Exception, so that no reader turns it into an error of its own."""


def network(*, ids: bool = False) -> zt.Sequential:
    """A small model with layers of several families."""
    layers = [L.Input((6,), dtype="int32"), L.Embedding(9, 4), L.LSTM(3), L.Dense(2)] if ids else [
        L.Input((6, 6, 2)), L.Conv2D(3, 3, activation="relu"), L.BatchNormalization(),
        L.MaxPooling2D(2), L.Flatten(), L.Dense(2)]
    return zt.Sequential(layers, seed=1)


def write_whole(folder: Path) -> None:
    """Whole files of all kinds. In a process of its own: PyTorch takes much memory."""
    from benchmarks import peers

    for ids in (False, True):
        (folder / "onnx").mkdir(exist_ok=True)
        network(ids=ids).export(folder / "onnx" / f"{ids}.onnx")
        network(ids=ids).save(folder / f"{ids}.keras")
    for suffix in (".safetensors", ".npz", ".gguf"):
        network().save_weights(folder / f"weights{suffix}")
    torch = peers.module("torch")
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                              torch.nn.Linear(48, 2)).eval()
    x = torch.zeros(2, 2, 6, 6)
    torch.export.save(torch.export.export(net, (x,), dynamic_shapes=(
        {0: torch.export.Dim("batch")},)), folder / "net.pt2")


class Kind(NamedTuple):
    """Files of one kind: what writes a damaged one and says where, and what reads it."""

    write: Callable[[Path, random.Random], Path]
    read: Callable[[Path], Any]
    share: float  # of all files


def from_file(path: Path, read: Callable[[Path], Any], share: float) -> Kind:
    """Damages one file."""
    data = path.read_bytes()

    def write(folder: Path, rng: random.Random) -> Path:
        damaged = folder / f"{NAME}{path.suffix}"
        damaged.write_bytes(content_changed(path.name, data, rng))
        return damaged

    return Kind(write, read, share)


def from_folders(share: float) -> Kind:
    """Folders of Hugging Face, of which one file is damaged or left out."""
    folders = sorted(path for path in FOLDERS.iterdir() if (path / "config.json").exists())

    def write(folder: Path, rng: random.Random) -> Path:
        damaged = folder / NAME
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(rng.choice(folders), damaged, ignore=shutil.ignore_patterns("*.npz"))
        file = rng.choice(sorted(damaged.iterdir()))
        if rng.randrange(20):
            file.write_bytes(content_changed(file.name, file.read_bytes(), rng))
        else:
            file.unlink()
        return damaged

    return Kind(write, zt.load_model, share)


def from_messages(files: Sequence[Path], share: float) -> Kind:
    """ONNX files of networks."""
    import onnx

    models = [onnx.load(path) for path in files]

    def write(folder: Path, rng: random.Random) -> Path:
        return _damaged_message(rng.choice(models), folder, rng)

    return Kind(write, zt.onnx.load, share)


def from_suite(share: float) -> Kind:
    """Models of ONNX's own tests, loaded as layers and traced for the inputs of the test."""
    known = exceptions()
    tests = {case.name: case for case in cases(["node"]) if case.name not in known}
    names = sorted(tests)
    fixed: dict[str, tuple[str, ...]] = {}

    def write(folder: Path, rng: random.Random) -> Path:
        name = rng.choice(names)
        (folder / "name").write_text(name)
        return _damaged_message(tests[name].model, folder, rng)

    def read(path: Path) -> Any:
        case = tests[(path.parent / "name").read_text()]
        if case.name not in fixed:
            fixed[case.name] = judge(case, None).fixed
        given = dict(zip((i.name for i in case.model.graph.input), case.data[0][0], strict=False))
        layer: Any = zt.onnx.load_layer(path, constants={n: given[n] for n in fixed[case.name]})
        ports = layer.file.inputs
        shapes = [np.shape(given[p.name]) if p.name in given else
                  tuple(n if isinstance(n, int) else 2 for n in p.dims) for p in ports]
        return layer.run([leaf("input", p.name, shape, p.dtype)
                          for p, shape in zip(ports, shapes, strict=True)], Context())

    return Kind(write, read, share)


def _damaged_message(model: Any, folder: Path, rng: random.Random) -> Path:
    path, data = folder / f"{NAME}.onnx", model.SerializeToString()
    if rng.randrange(4):
        copy = type(model).FromString(data)
        message_changed(copy, rng)
        path.write_bytes(copy.SerializeToString())
    else:
        path.write_bytes(bytes_changed(data, rng))
    return path


def kinds(folder: Path) -> dict[str, Kind]:
    """All kinds, of the whole files in a folder."""

    def weights(path: Path) -> Any:
        return network().load_weights(path)

    return {
        "ONNX, its own tests": from_suite(0.35),
        "ONNX, networks": from_messages(sorted((folder / "onnx").iterdir()), 0.15),
        ".pt2": from_file(folder / "net.pt2", zt.load_model, 0.1),
        ".keras, images": from_file(folder / "False.keras", zt.load_model, 0.05),
        ".keras, texts": from_file(folder / "True.keras", zt.load_model, 0.05),
        "Hugging Face": from_folders(0.1),
        ".gguf": from_file(folder / "weights.gguf", weights, 0.08),
        ".npz": from_file(folder / "weights.npz", weights, 0.06),
        ".safetensors": from_file(folder / "weights.safetensors", weights, 0.06)}


# -- reading ---------------------------------------------------------------------------------------

_kinds: dict[str, Kind] = {}  # what processes find in the memory that they are forked with


def read_damaged(name: str, first: int, count: int) -> list[Report]:
    """Damages so many files of one kind, and reads them."""
    def stop(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGPROF, stop)
    warnings.simplefilter("ignore")
    reports = []
    with tempfile.TemporaryDirectory() as folder:
        for k in range(first, first + count):
            path = _kinds[name].write(Path(folder), random.Random(f"{name} {k}"))
            _forget_peak()
            begun, outcome, message = time.process_time(), "read", ""
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                _kinds[name].read(path)
            except ZtorchError as error:
                message = str(error)
                outcome = "refused" if path.name in message else "nameless"
            except TooLong:
                outcome = "long"
            except Exception as error:
                outcome, message = "raw", f"{type(error).__name__}: {error}"
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            memory = _peak()
            reports.append(Report(name, k, "large" if memory > MOST_BYTES else outcome, message,
                                  time.process_time() - begun, memory))
    return reports


def _forget_peak() -> None:
    """Linux counts the peak of memory from here on; elsewhere it is that of the process so far."""
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def table(reports: Sequence[Report]) -> str:
    """How many files of each kind have each outcome."""
    lines = ["| files | " + " | ".join(OUTCOMES) + " | seconds at most | memory at most |",
             "| --- |" + " --- |" * (len(OUTCOMES) + 2)]
    names = dict.fromkeys(r.kind for r in reports)
    for label, own in [*((n, [r for r in reports if r.kind == n]) for n in names),
                       ("all", reports)]:
        counts = collections.Counter(r.outcome for r in own)
        lines.append(f"| {label} | " + " | ".join(str(counts[o]) for o in OUTCOMES) +
                     f" | {max(r.seconds for r in own):.1f} | "
                     f"{max(r.memory for r in own) / 2**20:.0f} MiB |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the files that are asked for. 1 where one is at fault."""
    parser = argparse.ArgumentParser(prog="python -m tools.damaged_files", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="files of all kinds together")
    parser.add_argument("--only", default="", help="a kind")
    parser.add_argument("--first", type=int, default=0, help="the number of the first of a kind")
    parser.add_argument("--jobs", type=int, default=usable_cores(), help="processes")
    options = parser.parse_args(arguments)
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        with ProcessPoolExecutor(1, fork) as writer:
            writer.submit(write_whole, Path(folder)).result()
        _kinds.update(kinds(Path(folder)))
    chosen = {n: k for n, k in _kinds.items() if options.only in ("", n)}
    total = sum(kind.share for kind in chosen.values())
    reports: list[Report] = []
    with ProcessPoolExecutor(options.jobs, fork) as pool:
        later = [pool.submit(read_damaged, name, first, min(CHUNK, end - first))
                 for name, kind in chosen.items()
                 for end in [options.first + round(options.count * kind.share / total)]
                 for first in range(options.first, end, CHUNK)]
        for future in later:
            for report in future.result():
                reports.append(report)
                if report.outcome not in ("read", "refused"):
                    print(f"{report.kind} {report.number}: {report.outcome}: "
                          f"{report.message[:300]}", flush=True)
            if sys.stderr.isatty():
                print(f"\r{len(reports)} files", end="", file=sys.stderr, flush=True)
    print(table(reports))
    return int(any(report.outcome not in ("read", "refused") for report in reports))


if __name__ == "__main__":
    sys.exit(main())
