"""Convolutions by a function of another library: a row of the table of opcodes, and its meaning.

Tensors have axes in the order that libraries name them: images or filters, channels, then those of
the window; `x_pitches`, `w_pitches` and `y_pitches` are the distances in memory along them. A
`mirrored` window begins with the last element of each axis. Where images and channels are
`swapped`, as in the gradient of filters, the meaning is the same, but libraries have a function of
their own. `before` and `after` are zeros around the images. `bias` names a memory with a number for
each filter, or is empty.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.dtypes import from_storage, to_storage
from ztorch.ir.library_products import ROWS as PRODUCTS

if TYPE_CHECKING:
    from ztorch.ir.kernel import Instr
    from ztorch.ir.lockstep import Lockstep, Watched

ROWS: dict[str, tuple[int, str, tuple[str, ...], dict[str, Any]]] = {
    **PRODUCTS,
    "library_convolution": (3, "y = x convolved with w by a function of a library (index of y, of "
                            "x, of w)", (
        "mem", "off", "y_pitches", "source", "source_off", "x", "x_pitches", "right", "right_off",
        "w", "w_pitches", "mirrored", "swapped", "bias", "bias_off", "strides", "dilations",
        "before", "after", "library", "call"),
        {"kinds": "f", "cost": 64})}


# What a function of a library must know before the first call, but for the memories.
DESCRIPTION = ("x", "x_pitches", "w", "w_pitches", "y_pitches", "strides", "dilations", "before",
               "after")


def call_name(attrs: dict[str, Any]) -> str:
    """The attribute `call`, which names what equal convolutions share.

    >>> call_name({**dict.fromkeys(DESCRIPTION, (1, 2)), "mirrored": False, "bias": ""})
    'c72fb3e55a58ba8e8'
    """
    text = repr([attrs[name] for name in DESCRIPTION] + [attrs["mirrored"], bool(attrs["bias"])])
    return "c" + hashlib.sha256(text.encode()).hexdigest()[:16]


def results_of(attrs: dict[str, Any]) -> tuple[int, ...]:
    """The extents of y: images, filters, and positions of the window.

    >>> results_of({"x": (2, 3, 8), "w": (5, 3, 3), "before": (1,), "after": (1,),
    ...             "dilations": (1,), "strides": (2,)})
    (2, 5, 4)
    """
    positions = ((n + before + after - (size - 1) * dilation - 1) // stride + 1
                 for n, size, before, after, dilation, stride in zip(
                     attrs["x"][2:], attrs["w"][2:], attrs["before"], attrs["after"],
                     attrs["dilations"], attrs["strides"], strict=True))
    return (attrs["x"][0], attrs["w"][0], *positions)


def places_of(extents: tuple[int, ...], pitches: tuple[int, ...]) -> np.ndarray:
    """The position of each element of a tensor from its first one on."""
    steps = [np.arange(n) * pitch for n, pitch in zip(extents, pitches, strict=True)]
    return np.asarray(sum(np.ix_(*steps), start=np.zeros((), np.int64)))


def convolve(m: Lockstep, at: int, instr: Instr, stores: tuple[Watched, ...],
             keys: tuple[int, ...]) -> Callable[[], None]:
    """Products and sums in float64, rounded once; by one thread."""
    a = instr.attrs
    tensors = [(results_of(a), a["y_pitches"], a["off"]), (a["x"], a["x_pitches"], a["source_off"]),
               (a["w"], a["w_pitches"], a["right_off"]), ((a["w"][0],), (1,), a["bias_off"])]

    def step() -> None:
        read, where = [], np.zeros(0, np.int64)
        for number in (*range(1, len(stores)), 0):
            extents, pitches, off = tensors[number]
            start = m.regs[keys[number]] if number < len(keys) else 0
            places = places_of(extents, pitches).reshape(1, -1) + off
            reached, live = m.reach(at, stores[number], start + places, None)
            if stores[number].races is not None or stores[number].known is not None:
                m.touch(at, stores[number], "read" if number else "write", reached, live)
            where = reached[0].reshape(extents)
            if number:
                read.append(from_storage(stores[number].spec.dtype,
                                         stores[number].data[where]).astype(np.float64))
        x, w, *bias = read
        if a["mirrored"]:
            w = np.flip(w, tuple(range(2, w.ndim)))
        x = np.pad(x, [(0, 0), (0, 0), *zip(a["before"], a["after"], strict=True)])
        result, every = np.zeros(tensors[0][0]), (slice(None), slice(None))
        for place in np.ndindex(w.shape[2:]):
            window = tuple(slice(o * d, o * d + (n - 1) * s + 1, s) for o, d, n, s in zip(
                place, a["dilations"], result.shape[2:], a["strides"], strict=True))
            seen, weights = every + window, every + place
            result += np.moveaxis(np.moveaxis(x[seen], 1, -1) @ w[weights].T, -1, 1)
        for b in bias:
            result += b.reshape(-1, *[1] * len(a["strides"]))
        stores[0].data[where] = to_storage(stores[0].spec.dtype, result)
    return step
