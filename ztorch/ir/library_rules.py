"""The rules for products by functions of other libraries."""

from __future__ import annotations

from ztorch.dtypes import f32
from ztorch.ir.library_convolutions import results_of
from ztorch.ir.library_products import MATRICES, lines_of
from ztorch.ir.rules import ATTRIBUTES, Rules, is_int

ATTRIBUTES.update(dict.fromkeys(("source_pitch", "right_pitch"), ATTRIBUTES["pitch"]))
ATTRIBUTES.update(dict.fromkeys(("x", "w", "x_pitches", "w_pitches", "y_pitches", "strides",
                                 "dilations"), ATTRIBUTES["extents"]))
ATTRIBUTES.update(dict.fromkeys(("before", "after"), lambda r, v: isinstance(v, tuple) and all(
    is_int(n) and 0 <= n < 1 << 31 for n in v)))
ATTRIBUTES.update(bias=lambda r, v: v == "" or ATTRIBUTES["mem"](r, v),
                  bias_off=ATTRIBUTES["off"], mirrored=ATTRIBUTES["transposed"],
                  swapped=ATTRIBUTES["transposed"],
                  call=lambda r, v: isinstance(v, str) and v.isalnum())


class LibraryRules(Rules):
    """The rules for single instructions, products by libraries among them."""

    def check_library_product(self) -> None:
        """Three memories of one dtype; the lines of each matrix are apart, and inside."""
        attrs = self.instr.attrs
        self.rule(all(attrs[size] > 0 for size in "mnk"), "has no elements")
        reaches = []
        for matrix in MATRICES:
            lines, length, pitch = lines_of(attrs, matrix)
            self.rule(pitch >= length, "lines of {} elements overlap at pitch {}", length, pitch)
            reaches.append((lines - 1) * pitch + length)
        self.call(reaches)

    def check_library_convolution(self) -> None:
        """Tensors of as many axes, of which all elements are inside."""
        a = self.instr.attrs
        axes = {len(a[name]) for name in ("x", "x_pitches", "w", "w_pitches", "y_pitches")}
        sizes = {2 + len(a[name]) for name in ("strides", "dilations", "before", "after")}
        self.rule(len(axes | sizes) == 1 and min(axes) > 2, "mixes numbers of axes")
        self.rule(a["x"][1] == a["w"][1], "{} channels of images, {} of filters", a["x"][1],
                  a["w"][1])
        results = results_of(a)
        self.rule(min(results) > 0, "has no elements")
        if a["bias"]:
            bias = self.memories[a["bias"]]
            self.rule(a["bias"] != a["mem"] and bias.access != "w"
                      and bias.dtype == self.memories[a["source"]].dtype
                      and 0 <= a["bias_off"] <= bias.size - a["w"][0],
                      "{} is no bias for {} filters", a["bias"], a["w"][0])
        self.call([1 + sum((n - 1) * pitch for n, pitch in zip(extents, a[pitches], strict=True))
                   for extents, pitches in ((results, "y_pitches"), (a["x"], "x_pitches"),
                                            (a["w"], "w_pitches"))])

    def call(self, reaches: list[int]) -> None:
        """The memories of a call, and the elements from the first to the last in each of them."""
        attrs = self.instr.attrs
        self.rule(attrs["mem"] not in (attrs["source"], attrs["right"]),
                  "{} is read and written at once", attrs["mem"])
        target, of = self.memories[attrs["mem"]], self.memories[attrs["source"]].dtype
        self.rule(target.access != "r", "{} is read-only", target.name)
        self.rule(target.dtype.is_float, "has no products of {!r}", target.dtype)
        self.rule(target.dtype in (of, f32), "has no products of {!r} in {!r}", of, target.dtype)
        for index, (name, off, *_), reach in zip(self.instr.args, MATRICES, reaches, strict=True):
            m, first = self.memories[attrs[name]], attrs[off]
            self.index(index)
            self.one_lane(index)
            self.rule(m is target or m.dtype == of, "{} holds {!r}, not {!r}", m.name, m.dtype, of)
            self.rule(m.space != "shared", "{} is shared", m.name)
            self.rule(m is target or m.access != "w", "{} is write-only", m.name)
            if index.is_const:
                first += index.number
                self.rule(first >= 0 and first + reach <= m.size,
                          "{}[{}] is outside its {} elements", m.name,
                          first if first < 0 else first + reach - 1, m.size)
