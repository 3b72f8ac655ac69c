"""Random kernels that write to every few elements: in any order, from any start, along rows and columns."""

from __future__ import annotations

from tests.kernels.random_sources import Writer


class StridedWriter(Writer):
    """Writes kernels as `Writer` does; some statements write to places of `wide`, with a step."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.data_bounds = False

    def text(self) -> str:
        text = super().text()
        body, self.lines = text.removesuffix("    return out, sums, total\n"), []
        self.line(1, self.random.choice(["wide = np.zeros((2 * n, 3 * m))", "wide = np.full((2 * n, 3 * m), 0.5)",
                                         "wide = np.concatenate([np.outer(y[0:4], y), x]) @ np.ones((m, 3 * m))"]))
        for _ in range(self.random.randint(1, 5)):
            self.strided()
        self.line(1, "return out, sums, total, wide")
        return body + "\n".join(self.lines) + "\n"

    def strided(self) -> None:
        """A loop over places of rows, and one over places of columns; another over neighbors in some."""
        r = self.random
        place = r.choice(["i", "2 * i", "2 * i + 1", "2 * n - 1 - 2 * i", "n + i"])
        period, run = r.choice([2, 3, 4, 5]), r.choice([1, 1, 1, 2])
        start = r.randint(0, 5)
        count = (15 - start - run) // period + 1
        count = r.choice([count, count, max(1, count - 2)])
        column = f"{start} + {period} * k" if r.random() < 0.7 else f"{start + period * (count - 1)} - {period} * k"
        inner, counters = ("", "i, k") if run == 1 else (" + q", "i, k, q")
        size = f"n, {count}" if run == 1 else f"n, {count}, {run}"
        self.line(1, f"for {counters} in zt.grid({size}):")
        depth = 2
        if r.random() < 0.25:
            self.line(depth, f"if {self.test(['i', '(k % m)'], [])}:")
            depth += 1
        value, target = self.value(["i", "(k % m)"], [], 2), f"wide[{place}, {column}{inner}]"
        self.line(depth, r.choice([f"{target} = {value}", f"{target} = {value}", f"{target} += {value}",
                                   f"{target} = max({target}, {value})"]))
