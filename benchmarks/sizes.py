"""Programs of several sizes: what a choice costs, and what a prediction of each size takes."""

from __future__ import annotations

from functools import partial

import numpy as np

import ztorch as zt
from benchmarks import peers
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch.runtime.buckets import Buckets

SIZES = (1, 8, 32)


def run(threads: list[int], effort: Effort) -> Section:
    """The time to choose, and predictions beside programs of one size."""
    s = Section("sizes", "several sizes in one program, one thread",
                "choosing is looking up each size: 2 us at most; a prediction computes all rows of "
                "its size, so that 5 rows take as long as 8")
    one = Buckets({"batch": SIZES})
    two = Buckets({"batch": SIZES, "time": (64, 128, 256)})
    choices = compare([Contestant("one axis", lambda: one.function("predict", (5,))),
                       Contestant("two axes", lambda: two.function("predict", (5, 100)))],
                      True, effort)
    s.compared("choosing", 1, choices, 0.0)
    layers = zt.layers
    model = zt.Sequential([layers.Input((784,)), layers.Dense(128, activation="relu"),
                           layers.Dense(10)], seed=1)
    several = model.compile("cpu", batch_size=SIZES, threads=1)
    for rows in (1, 5, 32):
        exact = model.compile("cpu", batch_size=rows, threads=1)
        x = np.random.default_rng(rows).normal(size=(rows, 784)).astype(np.float32)
        size = next(n for n in SIZES if n >= rows)
        whole = model.compile("cpu", batch_size=size, threads=1)
        filled = np.resize(x, (size, 784))
        error = peers.worst(several.predict(x), exact.predict(x).astype(np.float64))
        s.compared(f"predict, {rows} rows", 1, compare([
            Contestant("ztorch", partial(several.predict, x)),
            Contestant("one size", partial(exact.predict, x)),
            Contestant("as many rows as computed", partial(whole.predict, filled))],
            True, effort), error)
    return s
