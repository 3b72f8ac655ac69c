"""Random kernels that write to a matrix and to arrays of their own, at places of two or three counters."""

from __future__ import annotations

from tests.kernels.random_sources import Writer

PLACES = ["i", "k", "i", "k", "i + k", "k + 1", "i + 1", "i - k + 5", "2 * i", "i // 2", "k // 2", "i % 2", "p[i % 4]", "0",
          "3", "p[k % 4]", "(i + k) % 4", "min(i + 1, 4)", "max(k - 1, 0)", "i * k % 9", "3 * i % 10", "5 - k",
          "n - 1 - min(i, 3)", "abs(i - k)", "i * 2 + k % 2"]
INNER_PLACES = ["q", "q", "i + q", "k + q", "2 * k + q", "2 * i + q", "k * 2 - q + 2"]
OWN_PLACES = ["k", "k + 1", "2 * k", "k // 2", "i", "p[i % 4]", "i + k", "9 - k", "k % 3", "p[k % 4]"]


class PlaneWriter(Writer):
    """Writes a kernel of one to three loops over i and k, and over q in some."""

    def text(self) -> str:
        r = self.random
        self.line(0, "def kernel(x, y, p):")
        self.line(1, "n, m = x.shape")
        self.line(1, "line, plane = np.full(28, 0.5), np.ones((13, 14))")
        self.line(1, "marks = np.zeros((13, 14), np.int32)")
        for _ in range(r.randint(1, 3)):
            self.line(1, "for i in " + r.choice(["range(n)", "range(n)", "range(n - 1, -1, -1)", "range(1, n, 2)",
                                                 "range(5)"]) + ":")
            if r.random() < 0.4:
                self.own_array()
            self.line(2, "for k in " + r.choice(["range(m)", "range(m)", "range(m - 1, -1, -1)", "range(i, m)", "range(2)",
                                                 "range(0, m, 2)", "range(1)"]) + ":")
            self.writes()
        self.line(1, "return line, plane, marks")
        return "\n".join(self.lines) + "\n"

    def own_array(self) -> None:
        """An array that each iteration makes for itself, and how it is used."""
        r = self.random
        self.line(2, "row = np.zeros(14)")
        self.line(2, f"for k in {r.choice(['range(m)', 'range(m)', 'zt.grid(m)', 'range(i, m)'])}:")
        a = "k" if "grid" in self.lines[-1] else r.choice(OWN_PLACES)
        b = a if "grid" in self.lines[-1] else r.choice([a, a, r.choice(OWN_PLACES)])
        self.line(3, r.choice([f"row[{a}] = row[{b}] * 0.5 + y[k]", f"row[{a}] = x[i % 4, k]", f"row[{a}] += y[k]",
                               f"row[{a}] = max(row[{a}], y[k])"]))
        self.line(2, r.choice(["line[i] = row[3]", "line[i] += row.sum()", "line[i:i + 14] = row * 0.5", "plane[i] = row",
                               "plane[i % 3] += row", "line[p[i % 4]] = row[2]"]))

    def writes(self) -> None:
        r, depth, places = self.random, 3, PLACES
        if r.random() < 0.3:
            self.line(depth, f"for q in {r.choice(['range(2)', 'range(k + 1)', 'range(3)'])}:")
            depth, places = depth + 1, PLACES + INNER_PLACES
        if r.random() < 0.3:
            test = r.choice(["x[i % 4, k] > 0", "k < i", "i % 2 == 0", "p[i % 4] > 2"])
            self.line(depth, f"if {test}:")
            depth += 1
        for _ in range(r.randint(1, 2)):
            self.one_write(depth, places)

    def one_write(self, depth: int, places: list[str]) -> None:
        """Sets or changes an element, or a slice of a row."""
        r = self.random
        array = r.choice(["plane", "plane", "plane", "marks", "line"])

        def element() -> str:
            index = r.choice(places) if array == "line" else f"{r.choice(places)}, {r.choice(places)}"
            return f"{array}[{index}]"

        target, factor = element(), "2" if array == "marks" else "0.5"
        value = r.choice(["k * 3 + i", "i", "p[k % 4]", "1"] if array == "marks" else
                         ["x[i % 4, k]", "y[k]", "x[i % 4, (k + 2) % m]"])
        is_slice = array == "plane" and r.random() < 0.15
        if is_slice:
            target = f"plane[{r.choice(places)}, {r.choice(['2:7', 'i:i + 5', 'k:k + 5', ':5'])}]"
            value = r.choice(["y", "x[i % 4]", value])
        other = target if r.random() < 0.6 else element()
        forms = [f"{target} = {other} * {factor} + {value}", f"{target} = {value}", f"{target} += {value}",
                 f"{target} = {other} * {factor}", f"{target} -= {value}", f"{target} = {value}",
                 f"{target} = {target} * {factor} - {value}"]
        if not is_slice:
            forms += [f"{target} = max({target}, {value})", f"{target} = min({value}, {target})"]
        self.line(depth, r.choice(forms))
