"""Networks of torchvision, transformers and timm, exported by both exporters of PyTorch, beside
PyTorch and ONNX Runtime: `python -m benchmarks.networks [--only bert,swin] [--time]`.

A row is written as soon as it is known. A run that was broken off goes on where it was; what was
wrong is tried again."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import machine, peers
from benchmarks.network_kinds import NETWORKS, example, export, module_of
from benchmarks.timing import FULL, Contestant, compare

RESULTS = Path(__file__).parent / "results"
EXPORTERS = ("torchscript", "dynamo")
BOUND = 1e-5  # of the largest difference over the largest number
LONGEST = 900  # seconds of one network
COLUMNS = ("network", "exporter", "package", "nodes", "batch", "error", "compiling",
           "ztorch ms", "ONNX Runtime ms", "memory", "what is wrong")


def main(arguments: list[str] | None = None) -> int:
    """Measures the networks that are asked for. 1 where one is not equal."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__)
    parser.add_argument("--only", default=",".join(NETWORKS), help="networks, with commas")
    parser.add_argument("--exporters", default=",".join(EXPORTERS))
    parser.add_argument("--time", action="store_true", help="predictions too; rows without anew")
    parser.add_argument("--again", action="store_true", help="networks that have a row as well")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--files", type=Path, help="folder of the ONNX files, to keep them")
    parser.add_argument("--one", nargs=3, metavar=("WHAT", "NETWORK", "EXPORTER"),
                        help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.one:
        what, name, exporter = asked.one
        report = {"export": _exported, "import": _imported, "time": _timed}[what]
        print(json.dumps(report(name, exporter == "dynamo", asked.files)))
        return 0
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / f"networks-{machine.slug()}.json"
    rows = json.loads(path.read_text()) if path.exists() else {}
    networks = [name for name in NETWORKS if name in asked.only.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        files = asked.files or Path(folder)
        files.mkdir(parents=True, exist_ok=True)
        for name in networks:
            for exporter in asked.exporters.split(","):
                key = f"{name} {exporter}"
                row = {} if asked.again else rows.get(key, {})
                if "error" not in row or "what is wrong" in row:
                    row = _row(name, exporter, files)
                if asked.time and "ztorch ms" not in row and "what is wrong" not in row:
                    row = _grown(row, ("export", "time"), files)
                if row != rows.get(key):
                    rows[key] = row
                    path.write_text(json.dumps(rows, indent=1) + "\n")
                    path.with_suffix(".md").write_text(page(rows, machine.describe()))
                print(key, {k: v for k, v in rows[key].items() if k != "date"}, flush=True)
    return int(any(row.get("what is wrong") for row in rows.values()))


def _row(name: str, exporter: str, files: Path) -> dict[str, Any]:
    """The properties of one network but its milliseconds."""
    row = _grown({"network": name, "exporter": exporter, "package": NETWORKS[name].package},
                 ("export", "import"), files)
    if row.get("error", 0) > BOUND:
        row["what is wrong"] = f"the error is above {BOUND}"
    return row


def _grown(row: dict[str, Any], parts: tuple[str, ...], files: Path) -> dict[str, Any]:
    """A row and what these parts find out. Each runs in a process of its own, so that what one of
    them does to memory is its own. Compiling begins with nothing in the cache."""
    cache = _place(files, row["network"], row["exporter"] == "dynamo").with_suffix(".cache")
    environment = {**os.environ, "ZTORCH_CACHE": str(cache)}
    for part in parts:
        if part == "import":
            shutil.rmtree(cache, ignore_errors=True)
        command = [sys.executable, "-m", "benchmarks.networks", "--one", part, row["network"],
                   row["exporter"], "--files", str(files)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST,
                                  env=environment)
        except subprocess.TimeoutExpired:
            return {**row, "what is wrong": f"{part}: no end after {LONGEST} s"}
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
            last = next((k for k, line in enumerate(said) if line.startswith("ztorch.errors.")),
                        len(said) - 1)
            return {**row, "what is wrong": f"{part}: " + " ".join(
                line.strip() for line in said[last:])[:600]}
        row = row | json.loads(done.stdout.strip().splitlines()[-1])
    return row


def _place(files: Path, name: str, dynamo: bool) -> Path:
    return files / f"{name.replace(' ', '_')}-{EXPORTERS[dynamo]}.onnx"


def _exported(name: str, dynamo: bool, files: Path) -> dict[str, Any]:
    """Writes the file, and beside it what PyTorch computes, unless both are there."""
    path = _place(files, name, dynamo)
    results = path.with_suffix(".npz")
    if path.exists() and results.exists():
        return {}
    torch = peers.module("torch")
    network = NETWORKS[name]
    x, net = example(network), module_of(network)
    dynamic = export(net, x, path, dynamo)
    with torch.no_grad():
        arrays = {f"y{k}": y.numpy() for k, y in enumerate(_tensors(net(*x.values())))}
    np.savez(results, batch=np.array("any" if dynamic else "fixed"),
             **{f"x/{k}": v.numpy() for k, v in x.items()}, **arrays)
    return {}


def _tensors(results: Any) -> list[Any]:
    """The tensors in what a module returns."""
    if isinstance(results, dict):
        return [y for v in results.values() for y in _tensors(v)]
    if isinstance(results, (list, tuple)):
        return [y for v in results for y in _tensors(v)]
    return [results]


def _example(path: Path) -> tuple[str, dict[str, np.ndarray], list[np.ndarray]]:
    """The description beside a file: "any" or "fixed" batches, inputs, and PyTorch's outputs."""
    with np.load(path.with_suffix(".npz")) as stored:
        arrays = dict(stored)
    batch = str(arrays.pop("batch"))
    x = {k[2:]: v for k, v in arrays.items() if k.startswith("x/")}
    return batch, x, [arrays[f"y{k}"] for k in range(len(arrays) - len(x))]


def _imported(name: str, dynamo: bool, files: Path) -> dict[str, Any]:
    """Loads the file, compiles it for one thread and compares with what PyTorch computed."""
    import ztorch as zt

    path = _place(files, name, dynamo)
    batch, x, expected = _example(path)
    model = zt.onnx.load(path)
    begun = perf_counter()
    program = model.compile("cpu", batch_size=len(next(iter(x.values()))), threads=1)
    compiling = perf_counter() - begun
    results = _tensors(program.predict(x if len(x) > 1 else next(iter(x.values()))))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert [y.shape for y in results] == [y.shape for y in expected], (
        [y.shape for y in results], [y.shape for y in expected])
    error = max(float(np.abs(y - e).max() / max(np.abs(e).max(), 1e-30))
                for y, e in zip(results, expected, strict=True))
    nodes = sum(len(layer.nodes) for layer in model.layers if hasattr(layer, "nodes"))
    return {"nodes": nodes, "batch": batch, "error": error, "compiling": compiling,
            "memory": memory, "load": os.getloadavg()[0]}


def _timed(name: str, dynamo: bool, files: Path) -> dict[str, Any]:
    """Milliseconds of a prediction on one thread, in turns with ONNX Runtime."""
    import ztorch as zt

    path = _place(files, name, dynamo)
    _, x, _ = _example(path)
    program = zt.onnx.load(path).compile("cpu", batch_size=len(next(iter(x.values()))), threads=1)
    given: Any = x if len(x) > 1 else next(iter(x.values()))
    runtime = peers.module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {i.name for i in session.get_inputs()}
    feed = {k: v for k, v in x.items() if k in names}
    ours, theirs = compare([Contestant("ztorch", lambda: program.predict(given)),
                            Contestant("ONNX Runtime", lambda: session.run(None, feed))],
                           True, FULL)
    return {"ztorch ms": 1e3 * ours.seconds, "ONNX Runtime ms": 1e3 * theirs.seconds,
            "load": os.getloadavg()[0]}


def page(rows: dict[str, dict[str, Any]], facts: dict[str, Any]) -> str:
    """The table in Markdown, with the machine it was made on."""
    versions = {**facts["versions"], **{p: v for p in ("torchvision", "transformers", "timm")
                                        if (v := machine.version(p))}}
    order = list(NETWORKS)
    rows = dict(sorted(rows.items(), key=lambda row: (order.index(row[1]["network"]), row[0])))
    equal = sum(not row.get("what is wrong") for row in rows.values())
    timed = [row for row in rows.values() if "ztorch ms" in row]
    slower = [f"{row['network']} ({row['exporter']})" for row in timed
              if row["ztorch ms"] > row["ONNX Runtime ms"]]
    lines = [
        "# Networks of others", "",
        f"`python -m benchmarks.networks` on {facts['cpu']}, {facts['cores']}, "
        f"{facts['SIMD level']}; " + ", ".join(f"{k} {v}" for k, v in versions.items()) + ".", "",
        f"{equal} of {len(rows)} files are equal to PyTorch: the largest difference is at most "
        f"{BOUND:g} of the largest number of an output. Weights are random; those of transformers "
        "have small configs. Batches of two rows, one thread. The memory is all that the process "
        "had at its peak, with Python, NumPy and the package onnx. Times of predictions are CPU "
        "time of one thread, in turns with ONNX Runtime's, on a shared machine: others worked "
        "on it (the load average was up to "
        f"{max(row.get('load', 0) for row in rows.values()):.0f}), and compiling, by the clock, "
        "waited for them.",
        "",
        f"{len(timed) - len(slower)} of the {len(timed)} files with times take less than in ONNX "
        f"Runtime; slower: {', '.join(slower) or 'none'}." if timed else
        "Predictions were not timed on this machine.", "",
        *([f"The run was broken off: {len(EXPORTERS) * len(NETWORKS) - len(rows)} files more are "
           "in the tables of other machines.", ""]
          if len(rows) < len(EXPORTERS) * len(NETWORKS) else []),
        "| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS),
        *("| " + " | ".join(_cell(row, c) for c in COLUMNS) + " |" for row in rows.values()), ""]
    return "\n".join(lines)


def _cell(row: dict[str, Any], column: str) -> str:
    if column not in row:
        return ""
    value = row[column]
    if column == "error":
        return f"{value:.1e}"
    if column == "compiling":
        return f"{value:.1f} s"
    if column.endswith(" ms"):
        return f"{value:.2f}"
    if column == "memory":
        return f"{value / 2**20:.0f} MiB"
    return str(value).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
