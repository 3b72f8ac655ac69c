"""The machine as the results name it, and the two limits every kernel runs into: how many fused
multiply-adds it can do, and how fast it can read. Both are measured by kernels of our own IR."""

from __future__ import annotations

import ctypes
import datetime
import importlib.metadata
import os
import platform
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import ztorch
from benchmarks.level import AVX2
from benchmarks.programs import call, input_like, kernel_call, target
from benchmarks.report import Section, duration
from benchmarks.timing import Contestant, Effort, Timing, compare
from ztorch.graph.op import OPS
from ztorch.host import detect, processor
from ztorch.runtime.devices import best_level
from ztorch.runtime.executable import HostCall
from ztorch.tune.peaks import fma_kernel, read_kernel

PEERS = ("torch", "keras", "onnx", "onnxruntime", "numpy", "llvmlite",
         "jax", "numexpr")


def describe() -> dict[str, Any]:
    """Who was measured, where and when."""
    caches = {name: _size(size) for name, size in cache_bytes().items()}
    return {
        "date": datetime.date.today().isoformat(), "cpu": processor.cpu_name(),
        "cores": f"{processor.physical_cores()} physical, "
                 f"{processor.usable_cores()} usable threads",
        "SIMD level": best_level(), "caches": caches or "unknown",
        "memory": _size(processor.memory_bytes()),
        "OS": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load average at the start": f"{os.getloadavg()[0]:.2f}",
        # a peer may be held to less than the processor can do
        "environment": {n: os.environ[n] for n in AVX2 if n in os.environ} or "nothing",
        "versions": {"python": platform.python_version(), "ztorch": ztorch.__version__,
                     **{p: v for p in PEERS if (v := version(p))}},
    }


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def slug() -> str:
    """The processor's name and the name of its row, fit for a file. Makers sell several under one
    name.

    >>> re.fullmatch(r"[a-z0-9-]+", slug()) is not None
    True
    """
    name = re.sub(r"\((r|tm)\)|\bcpu\b|@.*", "", processor.cpu_name().lower())
    row = detect.detected().name.replace("any", "")
    return re.sub(r"[^a-z0-9]+", "-", f"{name} {row}").strip("-") or processor.architecture()


@cache
def cache_bytes() -> dict[str, int]:
    """Data caches by level, as the system describes them."""
    sizes = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((index / f).read_text().strip() for f in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            sizes[f"L{level}"] = int(size[:-1]) * 1024
    return sizes


def _size(nbytes: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes / 1024:.3g} KiB"


# -- limits ----------------------------------------------------------------------------------------


@cache
def fma_call(threads: int) -> tuple[HostCall, float]:
    """A call that only multiplies and adds in registers, and its floating-point operations."""
    kernel, flops = fma_kernel(target().limits, threads)
    x, y = (m.size for m in kernel.memories)
    values = np.repeat(np.array([0.5, 1.0], np.float32), x // 2)  # sums tend to 2: no subnormals
    return kernel_call(kernel, values, (y,), threads), flops


@cache
def read_call(threads: int, nbytes: int) -> tuple[HostCall, float]:
    """A call in which each thread sums its share of a buffer, and the bytes it reads."""
    kernel, read = read_kernel(target().limits, threads, nbytes)
    x, y = (m.size for m in kernel.memories)
    bound = kernel_call(kernel, np.ones(x, np.float32), (y,), threads)
    whole = bound.outputs["y"].sum() * 4 / read
    assert abs(whole - 1) < 1e-3, "the kernel does not read everything"
    return bound, read


def peak(threads: int) -> Contestant:
    """The FMA peak as a contestant: measured in the same turns, it shares their clock speed."""
    return Contestant("FMA peak", fma_call(threads)[0])


def run(threads: list[int], effort: Effort) -> Section:
    """The table of limits."""
    s = Section("machine", "The machine's limits",
                "this table is the limit: everything below is a share of it. Reading is by "
                "aligned vector loads of all threads together; each has its own part.")
    caches = cache_bytes()
    sizes = {"half of L1": caches.get("L1", 32 << 10) // 2,
             "half of L2": caches.get("L2", 512 << 10) // 2}
    sizes |= {"2.7 MB, as the weights of the MLP": 2_678_824, "32 MiB": 32 << 20}
    if effort.least > 3:  # filling it takes longer than a smoke run may
        sizes |= {"1 GiB": 1 << 30}
    for n in threads:
        bound, flops = fma_call(n)
        t, = compare([Contestant("fma", bound)], n == 1, effort)
        _rate(s, "fused multiply-add, float32", n, t, flops, "GFLOP/s")
        for label, size in sizes.items():
            per_thread = label.startswith("half")  # each thread has caches of its own
            bound, nbytes = read_call(n, size * n if per_thread else size)
            t, = compare([Contestant("read", bound)], n == 1, effort)
            _rate(s, f"reading {label}{' a thread' if per_thread else ''}", n, t, nbytes, "GB/s")
    x = np.ones(1, np.float32)
    t, = compare([Contestant("call", call(OPS.neg(input_like("x", x)), {"x": x}, 1))], True, effort)
    s.line({"what": "calling a program of one number", "threads": "1",
            "rate": duration(t.seconds), "p10–p90": f"{duration(t.p10)}–{duration(t.p90)}"},
           value=t.seconds)
    read_call.cache_clear()
    return s


def _rate(s: Section, case: str, threads: int, t: Timing, work: float, unit: str) -> None:
    s.line({"what": case, "threads": str(threads), "rate": f"{work / t.seconds / 1e9:.1f} {unit}",
            "p10–p90": f"{work / t.p90 / 1e9:.1f}–{work / t.p10 / 1e9:.1f}"},
           value=work / t.seconds)


def blas_threads(count: int) -> bool:
    """Sets the threads of NumPy's OpenBLAS, which offers no Python way to do so."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return False
    done = False
    for path in {line.split()[-1] for line in maps.splitlines() if "openblas" in line}:
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads",
                     "openblas_set_num_threads64_", "openblas_set_num_threads"):
            if hasattr(library, name):
                getattr(library, name)(count)
                done = True
                break
    return done
