"""Reports about tables and images, as pages."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.cases.browser import Browser
from tests.cases.tables import COLUMNS, NEW, write_csv
from tests.commands.results import Run, fails, ok

# -- reports ---------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The tables of a page as lists of cells, its tags, and whether each tag is closed."""

    def __init__(self, text: str):
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.sources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img", "path", "polyline", "html"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("path", "polyline"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """No matplotlib, which takes seconds to draw."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


def test_a_report_shows_where_the_model_is_wrong(trained: tuple[Path, str], run: Run, no_plots: None) -> None:
    evil = COLUMNS | {"name": ["<script>alert(1)</script> the first"] * 1000}
    write_csv(Path("test.csv"), evil, NEW)
    assert "Wrote r.html" in ok(run("report", trained[0], "--data", "test.csv", "-o", "r.html"))
    text = Path("r.html").read_text()
    page = Page(text)
    assert "Pictures of the plan need matplotlib" in text and "data:image/svg" not in text
    assert not page.open and "script" not in page.tags and "svg" in page.tags and "polyline" in page.tags
    assert all(source.startswith("data:image/") for source in page.sources)  # nothing is loaded
    program = zt.load(trained[0])
    predictions = program.predict_table("test.csv")
    assert program.pipeline is not None and predictions.probabilities is not None
    truth = program.pipeline.targets("test.csv")
    matrix = [[str(np.sum((truth == i) & (predictions.values == j))) for j in (0, 1)] for i in (0, 1)]
    assert ["lost", *matrix[0]] in page.rows and ["saved", *matrix[1]] in page.rows
    assert f"<b>{np.mean(truth == predictions.values):.1%}</b>accuracy" in text
    losses = -np.log(predictions.probabilities[np.arange(300), truth])
    worst = int(losses.argmax())
    row = page.rows[page.rows.index(["where", "is", "predicted", "loss", "input"]) + 1]
    assert row[:2] == [f"line {worst + 2}", predictions.classes[truth[worst]]] and row[3] == f"{losses[worst]:.3g}"
    assert f"age: {evil['age'][700 + worst] or '(gap)'}" in row[4] and "<script>alert" in row[4]
    order = [r[0] for r in page.rows if len(r) == 3 and r[1][:1] in "+-" and r[0] in COLUMNS]
    assert order[0] in ("sex", "class") and len(order) == 6


def test_a_report_of_images(artifact: Path, run: Run, no_plots: None) -> None:
    ok(run("report", artifact, "--data", "digits", "-o", "d.html"))
    page = Page(Path("d.html").read_text())
    assert sum(source.startswith("data:image/png") for source in page.sources) > 3
    assert len([row for row in page.rows if len(row) == 11]) == 11  # the confusion of ten digits


def test_a_report_of_files_names_them(run: Run, no_plots: None) -> None:
    pillow = pytest.importorskip("PIL.Image")
    for name, gray in (("bright/1.png", 255), ("dark/<2>.png", 0), ("bright/3.png", 100)):
        Path("all", name).parent.mkdir(parents=True, exist_ok=True)
        pillow.new("L", (8, 8), gray).save(Path("all", name))
    model = zt.Sequential([zt.layers.Input((4, 4, 1)), zt.layers.GlobalAveragePooling2D(), zt.layers.Dense(2, use_bias=False), zt.layers.Softmax()], name="light")
    model.set_weights([np.array([[9.0, -9.0]])])  # bright, or it cannot tell
    model.pipeline = zt.Pipeline.of_classes(["bright", "dark"], images=True)
    model.compile("cpu:scalar", batch_size=2).save("light.zt")
    ok(run("report", "light.zt", "--data", "all"))
    text = Path("light.html").read_text()
    assert "is dark</figcaption>predicted bright 50\u00a0%<small>dark/&lt;2&gt;.png, loss 0.693" in text
    assert text.count("<figcaption>is") == 1 and Page(text).sources[0].startswith("data:image/png")


def test_a_report_of_texts_and_a_single_probability(run: Run, no_plots: None) -> None:
    words = zt.layers.TextVectorization(vocabulary=["good", "bad"], output_sequence_length=2)
    model = zt.Sequential([words, zt.layers.Embedding(4, 1), zt.layers.GlobalAveragePooling1D(), zt.layers.Dense(1, activation="sigmoid")], name="moods")
    model.set_weights([np.array([[0.0], [0.0], [-6.0], [6.0]]), np.ones((1, 1)), np.zeros(1)])
    model.pipeline = zt.Pipeline.of_classes(["glad", "sad"])
    model.compile("cpu:scalar", batch_size=2, loss="binary_crossentropy")
    model.save("moods.zt")
    Path("moods.csv").write_text("review,mood\ngood day,glad\nbad day,sad\n<bad> food,glad\n")
    ok(run("report", "moods.zt", "--data", "moods.csv", "-o", "moods.html"))
    rows = Page(Path("moods.html").read_text()).rows
    assert rows[rows.index(["where", "is", "predicted", "loss", "input"]) + 1] == ["row 2", "glad", "sad 95 %", "3.05", "<bad> food"]
    Path("moods.csv").write_text("review,mood,more\ngood day,glad,1\n")
    fails(run("report", "moods.zt", "--data", "moods.csv"), "pass two columns, the text and then its label")


def test_a_report_of_quantities(run: Run) -> None:
    pytest.importorskip("matplotlib")
    model = zt.Sequential([zt.layers.Input((2,)), zt.layers.Dense(1, kernel_initializer="ones")])
    model.compile("cpu:scalar", batch_size=8).save("sum.zt")
    np.savez("sum.npz", x=[[1.0, 2.0], [3.0, 5.0], [0.0, 1.0]], y=[3.0, 8.0, 2.0])
    ok(run("report", "sum.zt", "--data", "sum.npz"))
    page = Page(Path("sum.html").read_text())
    assert [source[:25] for source in page.sources] == ["data:image/svg+xml;base64"]  # the plan of predict
    rows = page.rows
    assert rows[rows.index(["where", "is", "predicted", "loss", "input"]) + 1] == ["row 2", "2", "1", "1", "0, 1"]
    fails(run("report", "sum.zt", "--data", "sum.npz", "-o", "r.pdf"), "must end in .html")
    np.savez("wide.npz", x=[[1.0, 2.0]], y=np.ones((1, 5)))
    fails(run("report", "sum.zt", "--data", "wide.npz"), r"gives \(.*\) for a row, and the answers of wide.npz are of \(5,\)")


def test_a_report_is_about_one_output_of_several(run: Run, no_plots: None) -> None:
    x = zt.layers.Input((3,))
    model = zt.Model(x, [zt.layers.Dense(1, name="size")(x), zt.layers.Dense(2, activation="softmax", name="kind")(x)])
    model.compile("cpu:scalar", batch_size=5).save("two.zt")
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    size, kind = model.predict(rows)
    np.savez("two.npz", x=rows, size=size + 0.5, kind=(kind[:, 0] < 0.5).astype(np.int32))
    for name in ("size", "kind"):
        ok(run("report", "two.zt", "--data", "two.npz", "--output", name, "-o", f"{name}.html"))
    assert "model: size" in (page := Path("size.html").read_text()) and "0.5" in page
    assert "model: kind" in (page := Path("kind.html").read_text()) and "100.0%" in page
    for output in ([], ["--output", "age"]):
        fails(run("report", "two.zt", "--data", "two.npz", *output), "choose one with --output: size, kind")


def test_a_report_of_several_inputs(run: Run, no_plots: None) -> None:
    inputs = [zt.layers.Input(shape, name=name) for name, shape in (("photo", (4, 4, 1)), ("age", (1,)), ("both", (2,)))]
    flat = zt.layers.Concatenate()([zt.layers.Rescaling(0.0)(zt.layers.Flatten()(inputs[0])), *inputs[1:]])
    model = zt.Model(inputs, zt.layers.Dense(1, kernel_initializer="ones")(flat))  # the photo does not count
    model.compile("cpu:scalar", batch_size=5).save("many.zt")
    rng = np.random.default_rng(0)
    rows = {"photo": rng.random((20, 4, 4, 1)), "age": rng.random((20, 1)) * 9, "both": rng.random((20, 2))}
    np.savez("many.npz", **rows, y=rows["age"][:, 0] + rows["both"].sum(1))
    ok(run("report", "many.zt", "--data", "many.npz", "-o", "many.html"))
    page = Page(Path("many.html").read_text())
    named = {row[0]: float(row[1]) for row in page.rows if row and row[0] in ("photo", "age", "both 0", "both 1")}
    assert named["age"] > named["both 0"] > named["photo"] == 0.0 and next(iter(named)) == "age"
    worst = page.rows[page.rows.index(["where", "is", "predicted", "loss", "input"]) + 1]
    assert worst[-1].strip().startswith("age: ") and "; both: " in worst[-1]
    np.savez("fewer.npz", age=rows["age"], y=rows["age"])
    fails(run("report", "many.zt", "--data", "fewer.npz"), "has no array 'photo'")


def test_reports_open_in_a_browser(trained: tuple[Path, str], artifact: Path, run: Run, browser: Browser) -> None:
    """Nothing is asked for, nothing complains, pictures are there, and a phone is wide enough."""
    write_csv(Path("test.csv"), COLUMNS | {"name": ["<script>alert(1)</script> the first"] * 1000}, NEW)
    ok(run("report", trained[0], "--data", "test.csv", "-o", "table.html"))
    ok(run("report", artifact, "--data", "digits", "-o", "images.html"))
    for page, pictures in (("table.html", 1), ("images.html", 4)):
        tab = browser.open(Path(page))
        assert "accuracy" in tab.text("body") and "report" in tab.evaluate("document.title")
        assert tab.evaluate("[...document.images].filter((i) => i.complete && i.naturalWidth).length") >= pictures
        assert tab.evaluate("[...document.images].every((i) => i.naturalWidth)")
        tab.resize(390, 844)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        assert tab.complaints() == [] and tab.requests() == []
        tab.close()


def test_a_page_has_a_field_for_each_column(trained: tuple[Path, str], run: Run, browser: Browser) -> None:
    write_csv(Path("test.csv"), COLUMNS, NEW)
    ok(run("export", trained[0], "--web", "--samples", "test.csv", "-o", "page"))
    tab = browser.open(Path("page/index.html"), "Object.defineProperty(Navigator.prototype, 'gpu', { value: undefined });")
    tab.until("globalThis.model && document.querySelector('#winner b')")
    assert tab.text("#target") == "fate"
    cells = {"class": "first", "name": "Mrs. Ann the 3th", "sex": "female", "age": "", "fare [pound]": "12.5", "boarded": "1912-04-09"}
    for n, cell in enumerate(cells.values()):
        field = f"document.querySelectorAll('.form :is(input, select, textarea)')[{n}]"
        tab.evaluate(f"{field}.value = {cell!r}; {field}.oninput()")
    table = zt.load(trained[0]).predict_table({name: [cell] for name, cell in cells.items()})
    assert table.probabilities is not None
    want = dict(zip(table.classes, table.probabilities[0], strict=True))
    tab.until(f"document.querySelector('#winner b').innerText === {max(want, key=want.__getitem__)!r}")
    shown = tab.evaluate("[...document.querySelectorAll('#outputs td:first-child')].map((td) => [td.innerText, parseFloat(td.parentNode.lastChild.innerText)])")
    assert dict(shown) == pytest.approx({name: 100 * p for name, p in want.items()}, abs=0.51)

    tab.evaluate("{ const run = model.predict.bind(model); model.predict = async (x) => { globalThis.seen = [...x]; return run(x); }; }")
    for sample in range(4):  # fills the fields, from which the same numbers come
        tab.evaluate(f"seen = undefined, document.querySelectorAll('#samples button')[{sample}].click()")
        numbers = tab.until("globalThis.seen")
        cells = tab.evaluate("[...document.querySelectorAll('.form :is(input, select, textarea)')].map((field) => field.value)")
        assert cells[1] in COLUMNS["name"][NEW]
        tab.evaluate("seen = undefined, document.querySelector('.form textarea').oninput()")
        np.testing.assert_allclose(tab.until("globalThis.seen"), numbers, rtol=1e-6)
    assert tab.complaints() == [] and tab.requests() == []
    tab.close()
