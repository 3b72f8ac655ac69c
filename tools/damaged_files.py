"""Reads files that were damaged, of every kind that people bring from elsewhere.

`python -m tools.damaged_files` damages 10,000, in the same ways in each run, and reads them: models
of ONNX's own tests, networks, .pt2, .keras, folders of Hugging Face, weights of five kinds,
artifacts, and rows as NPY, CSV, IDX, PNG and WAV. Each must be an error of ztorch that names the
file, or still hold a model; it ends with 1 where one is another exception, takes more than ten
seconds or more than a GiB. `--only KIND --first K --count 1` reads one of them again.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import random
import re
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tools.damaged_kinds import Kind, kinds, write_whole
from ztorch.errors import ZtorchError
from ztorch.host.processor import usable_cores

SECONDS = 10  # of processor time, for one file
MOST_BYTES = 1 << 30
CHUNK = 25  # files that a process reads before it reports
PARTS = re.compile(  # parts of a message that name the damaged part of an ONNX file
    r"\b(node|initializer|input|output|tensor|attribute)s? |value_info name|as output names|"
    r"onnx: '|two initializers")
OUTCOMES = {
    "read": "what it still holds is a model, or weights",
    "refused": "an error of ztorch that names the file",
    "nameless": "an error of ztorch that does not",
    "raw": "another exception",
    "long": f"more than {SECONDS} seconds of processor time",
    "large": "more than a GiB of memory in the process",
}


class Report(NamedTuple):
    """The outcome of one damaged file."""

    kind: str
    number: int
    outcome: str
    message: str
    seconds: float
    memory: int


class TooLong(BaseException):
    """Not an Exception, so that no reader turns it into an error of its own."""


_kinds: dict[str, Kind] = {}  # inherited by forked processes


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
            start, outcome, message = time.process_time(), "read", ""
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
                                  time.process_time() - start, memory))
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


def faulty(report: Report) -> bool:
    """Whether the outcome is a fault of ztorch."""
    return report.outcome not in ("read", "refused")


def names_part(report: Report) -> bool:
    """Whether a message names the node, initializer, input or output of an ONNX file, not the file
    alone."""
    return bool(PARTS.search(report.message))


def parts(reports: Sequence[Report]) -> str:
    """How many messages about ONNX files name the damaged part, and the other messages."""
    own = [r for r in reports if r.kind.startswith("ONNX") and r.outcome == "refused"]
    alike: collections.Counter[str] = collections.Counter()
    for report in own:
        if not names_part(report):
            _, _, text = report.message.partition(".onnx ")
            alike[re.sub(r"\d+", "N", text.partition(";")[0])] += 1
    lines = [f"{len(own) - sum(alike.values())} of {len(own)} messages about ONNX files name the "
             "part, such as a node; the others:", "",
             "| files | what is said of the file |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {n} | {text} |" for text, n in alike.most_common())])


def table(reports: Sequence[Report]) -> str:
    """How many files of each kind have each outcome."""
    lines = ["| files | " + " | ".join(OUTCOMES) + " | seconds at most | memory at most |",
             "| --- |" + " --- |" * (len(OUTCOMES) + 2)]
    for name in [*dict.fromkeys(r.kind for r in reports), "all"]:
        own = [r for r in reports if name in (r.kind, "all")]
        counts = collections.Counter(r.outcome for r in own)
        lines.append(f"| {name} | " + " | ".join(str(counts[o]) for o in OUTCOMES) +
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
    selected = {n: k for n, k in _kinds.items() if options.only in ("", n)}
    total, reports = sum(kind.share for kind in selected.values()), list[Report]()
    with ProcessPoolExecutor(options.jobs, fork) as pool:
        futures = [pool.submit(read_damaged, name, first, min(CHUNK, end - first))
                   for name, kind in selected.items()
                   for end in [options.first + round(options.count * kind.share / total)]
                   for first in range(options.first, end, CHUNK)]
        for future in futures:
            reports += future.result()
            for report in filter(faulty, future.result()):
                print(f"{report.kind} {report.number}: {report.outcome}: {report.message[:300]}",
                      flush=True)
            if sys.stderr.isatty():
                print(f"\r{len(reports)} files", end="", file=sys.stderr, flush=True)
    print(table(reports), parts(reports), sep="\n\n")
    return int(any(map(faulty, reports)))


if __name__ == "__main__":
    sys.exit(main())
