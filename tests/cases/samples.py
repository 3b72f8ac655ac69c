"""Sample arguments for every registered op, for tests of the ops and of everything that runs them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import ztorch.ops  # noqa: F401  (fills the registry)
from ztorch.dtypes import DType, boolean, dtype, f32, i32, to_storage, u32
from ztorch.graph.op import REGISTRY, Public, Sample, leaf, public_ops
from ztorch.graph.value import Value

KINDS = {"f": f32, "s": i32, "u": u32, "b": boolean}

# Ops that a sample cannot describe, and where else they are tested.
UNSAMPLED = {
    "slice_by": "takes a Python key: test_movement",
    "einsum": "takes a string first: test_products",
    "bitcast": "its meaning depends on the width: test_elementwise",
    "stop_gradient": "its gradient is zero on purpose: test_autodiff",
    "random_bits": "against Threefry itself: test_random",
    "random_uniform": "test_random", "random_normal": "test_random", "dropout": "test_random",
    "random_truncated_normal": "test_losses_and_layers", "random_gamma": "test_losses_and_layers",
}


@dataclass(frozen=True)
class Case:
    """One op on one sample in one dtype."""

    public: Public
    sample: Sample
    dtype: DType
    number: int
    result: str = ""  # which, of an op that gives several

    def __str__(self) -> str:
        return f"{self.public.name}{self.result and '.' + self.result}-{self.number}-{self.dtype!r}"

    def arrays(self) -> list[np.ndarray]:
        """The same random arguments every time; floats as float64."""
        label = f"{self.public.name}-{self.number}-{self.dtype!r}"  # the same for every result
        rng = np.random.default_rng(zlib.crc32(label.encode()))
        out = []
        for at, given in enumerate(self.sample.shapes):
            kind = "b" if self.public.name == "where" and at == 0 else self.dtype.kind
            out.append(given if isinstance(given, np.ndarray) else self._draw(rng, given, kind))
        return out

    def _draw(self, rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
        low, high = self.sample.low, self.sample.high
        if kind == "f":
            return rng.uniform(low, high, shape)
        if kind == "b":
            return rng.random(shape) < 0.5
        start = max(0, int(np.ceil(low))) if kind == "u" else int(np.ceil(low))
        return rng.integers(start, int(high) + 1, shape).astype(self.dtype.numpy)

    def leaves(self, floats: DType | str | None = None) -> list[Value]:
        """An input for each argument; those of a float in the given dtype."""
        out = []
        for k, a in enumerate(self.arrays()):
            d = dtype(floats or self.dtype) if a.dtype.kind == "f" else dtype(a.dtype)
            out.append(leaf("input", f"x{k}", a.shape, d))
        return out

    def call(self, *args: Value) -> Value:
        return self._one(self.public.call(*self.public.grouped(args), **self.sample.attrs))

    def _one(self, results: Any) -> Any:
        """This case's own result."""
        return results[self.public.results.index(self.result)] if self.result else results

    def reference(self, *arrays: np.ndarray) -> Any:
        """NumPy's answer."""
        meaning = self.public.reference or self.public.primitive.numpy  # type: ignore[union-attr]
        with np.errstate(all="ignore"):
            return np.asarray(self._one(meaning(*self.public.grouped(arrays), **self.sample.attrs)))


def cases(kinds: str = "fsub", composed: bool = False) -> Iterator[Case]:
    """All ops, all samples, one dtype of each of the kinds that the sample allows; or those that
    are mere compositions of others."""
    for public in (p for p in REGISTRY.values() if p.composed) if composed else public_ops():
        for number, sample in enumerate(public.samples):
            for kind in sample.dtypes:
                for result in public.results or ("",):
                    if kind in kinds:
                        yield Case(public, sample, KINDS[kind], number, result)


def stored(v: Value, array: np.ndarray) -> np.ndarray:
    """The array as the leaf's dtype, ready to feed."""
    return to_storage(v.dtype, array) if v.dtype.name != "bf16" else array.astype(np.float32)
