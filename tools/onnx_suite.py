"""ONNX's own backend tests, which come with the package onnx: how many of them pass.

`python -m tools.onnx_suite` evaluates every case with NumPy and compiled for the CPU, on all cores,
and prints how many pass. With `--check` it ends with 1 where a case differs from the list of those
that are known not to pass, tests/interchange/onnx_exceptions.txt. With `--write` it writes that
list, and the tables of docs/onnx.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from tools.onnx_cases import SuiteCase, Verdict, cases, judge
from tools.onnx_tables import EXCEPTIONS, counted, difference, exceptions, write
from ztorch.host.processor import usable_cores

MOST_FAULTS = 20  # differences that are listed before a check gives up

_chosen: list[SuiteCase] = []  # inherited by forked processes


def _verdict(k: int, device: str | None) -> Verdict:
    """With NumPy first, compiled only if that is right; the worse of both."""
    verdict = judge(_chosen[k], device=None)
    if not device or verdict.outcome not in ("pass", "shape", "rounding"):
        return verdict
    compiled = judge(_chosen[k], device)
    return verdict if compiled.outcome == "pass" else compiled


def judged(selected: Sequence[SuiteCase], device: str | None,
           jobs: int) -> Iterator[tuple[SuiteCase, Verdict]]:
    """Each case and its outcome, in so many processes; compiled if there is a device."""
    _chosen[:] = selected
    if jobs == 1:
        for k, case in enumerate(selected):
            yield case, _verdict(k, device)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        futures = [pool.submit(_verdict, k, device) for k in range(len(selected))]
        try:
            for k, case in enumerate(selected):
                yield case, futures[k].result()
        except BrokenProcessPool:
            names = ", ".join(case.name for case in selected[k:k + 2 * jobs])
            sys.exit(f"a process ended at one of {names}; --jobs 1 --only NAME runs one alone")
        finally:
            pool.shutdown(cancel_futures=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cases that are asked for. 1 where `--check` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m tools.onnx_suite", description=__doc__)
    parser.add_argument("--numpy", action="store_true", help="evaluate with NumPy, compile nothing")
    parser.add_argument("--device", default="cpu", help="the device to compile for")
    parser.add_argument("--each", type=int, default=1, help="take one of so many cases")
    parser.add_argument("--turn", type=int, default=0, help="which of them, modulo --each")
    parser.add_argument("--only", default="", help="a regular expression that names contain")
    parser.add_argument("--jobs", type=int, default=usable_cores() if hasattr(os, "fork") else 1,
                        help="processes; those that the operating system cannot fork are not used")
    parser.add_argument("--check", action="store_true", help="compare with the list of exceptions")
    parser.add_argument("--write", action="store_true", help="write docs/onnx.md and exceptions")
    options = parser.parse_args(arguments)
    selected = [*cases()][options.turn % options.each::options.each]
    selected = [case for case in selected if re.search(options.only, case.name)]
    expected, faults = exceptions(), []
    verdicts: dict[str, tuple[str, Verdict]] = {}
    watched = sys.stderr.isatty()
    for case, verdict in judged(selected, None if options.numpy else options.device, options.jobs):
        verdicts[case.name] = case.kind, verdict
        if watched:
            print(f"\r{len(verdicts)} of {len(selected)}", end="", file=sys.stderr, flush=True)
        if fault := difference(case.name, verdict, expected):
            faults.append(fault)
            print(("\r" if watched else "") + fault, flush=True)
            if options.check and len(faults) == MOST_FAULTS:
                print(f"and so on: {len(selected) - len(verdicts)} cases were not tried")
                return 1
    print(("\r" if watched else "") + counted(verdicts))
    if options.write:
        write(verdicts)
    elif options.check and faults:
        print(f"{len(faults)} of {len(selected)} cases differ from {EXCEPTIONS.name}; if that is "
              "right, run python -m tools.onnx_suite --write")
    elif options.check:
        print(f"{len(selected)} cases are as listed")
    return int(options.check and bool(faults))


if __name__ == "__main__":
    sys.exit(main())
