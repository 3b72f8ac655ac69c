"""Tables and folders of images on the command line: trained without a model file, predicted with names."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import ztorch as zt
from tests.cases.tables import COLUMNS, NEW, ROWS, least_squares, logistic_regression, write_csv
from tests.commands.results import Run, fails, ok
from ztorch.cli import main
from ztorch.data.json_lines import read_json_lines


def test_training_reports_its_steps(trained: tuple[Path, str]) -> None:
    _, said = trained
    assert re.search(r"^age +number +\d+ ", said, re.M) and re.search(r"^PassengerId +ignored .* numbers the rows", said, re.M)
    assert "Predicts fate, 2 classes, from 6 columns" in said and "probabilities (Activation)" in said
    result = re.search(r"On 140 rows it was not trained on: accuracy ([\d.]+)%; always 'lost' would give ([\d.]+)%", said)
    assert result and float(result[1]) > float(result[2]) + 5


def test_it_is_as_good_as_logistic_regression(trained: tuple[Path, str]) -> None:
    """On rows that neither saw, with the same features."""
    program = zt.load(trained[0])
    pipeline = program.pipeline
    assert pipeline is not None
    new = {name: cells[NEW] for name, cells in COLUMNS.items()}
    old = {name: cells[ROWS] for name, cells in COLUMNS.items()}
    y, truth = pipeline.targets(old), pipeline.targets(new)
    predictions = program.predict_table(new)
    plain = logistic_regression(pipeline.inputs(old).astype(float), y, pipeline.inputs(new).astype(float))
    accuracy, of_plain = np.mean(predictions.values == truth), np.mean((plain > 0.5) == truth)
    assert of_plain > 0.74  # the baseline works; always "lost" gives 0.6
    assert accuracy > of_plain - 0.015
    assert predictions.probabilities is not None
    losses = [-np.log(np.where(truth, p, 1 - p)).mean() for p in (predictions.probabilities[:, 1], plain)]
    assert losses[0] < losses[1] + 0.01


def test_run_writes_names_and_probabilities(trained: tuple[Path, str], run: Run) -> None:
    """Columns in any order, with the target or without, from a file or standard input."""
    write_csv(Path("new.csv"), COLUMNS, NEW)
    program = zt.load(trained[0])
    expected = program.predict_table("new.csv")
    output = ok(run("run", trained[0], "new.csv"))
    rows = list(csv.DictReader(io.StringIO(output)))
    assert list(rows[0]) == ["fate", "probability", "lost", "saved"] and len(rows) == 300
    assert [r["fate"] for r in rows] == expected.names
    np.testing.assert_allclose([float(r["saved"]) for r in rows], expected.probabilities[:, 1], rtol=1e-5)
    turned = {name: COLUMNS[name] for name in reversed(COLUMNS) if name not in ("fate", "ship")}
    write_csv(Path("turned.csv"), turned, NEW)
    result = CliRunner().invoke(main, ["run", str(trained[0]), "-"], input=Path("turned.csv").read_text())
    assert ok(result) == output
    assert ok(run("run", trained[0], "new.csv", "--classes")).splitlines() == ["fate", *expected.names]
    assert "300 rows" in ok(run("run", trained[0], "new.csv", "-o", "y.csv"))
    assert Path("y.csv").read_text() == output
    ok(run("run", trained[0], "new.csv", "-o", "y.jsonl"))
    lines = read_json_lines("y.jsonl")
    assert [*lines] == ["fate", "probability", "lost", "saved"] and list(lines["fate"]) == expected.names
    np.testing.assert_allclose(lines["saved"], expected.probabilities[:, 1], rtol=1e-6)
    ok(run("run", trained[0], "new.csv", "-o", "y.ndjson", "--classes"))
    assert [*read_json_lines("y.ndjson")] == ["fate"]
    ok(run("run", trained[0], "new.csv", "-o", "y.npy"))
    assert np.array_equal(np.load("y.npy"), expected.probabilities)


def test_run_warns_of_new_categories_and_explains_wrong_tables(trained: tuple[Path, str], run: Run) -> None:
    write_csv(Path("odd.csv"), COLUMNS | {"class": ["fourth"] * 1000}, NEW)
    result = run("run", trained[0], "odd.csv")
    assert result.exit_code == 0
    assert "300 cells of column 'class' hold categories that the model never saw: 'fourth'" in result.stderr
    write_csv(Path("less.csv"), {k: v for k, v in COLUMNS.items() if k != "sex"}, NEW)
    fails(run("run", trained[0], "less.csv"), "less.csv has no column 'sex'")
    write_csv(Path("text.csv"), COLUMNS | {"age": ["old"] * 1000}, NEW)
    fails(run("run", trained[0], "text.csv"), "text.csv, line 2, column 'age': 'old' is not a number")


def test_inspect_describes_the_columns(trained: tuple[Path, str], run: Run) -> None:
    output = ok(run("inspect", trained[0]))
    assert re.search(r"^  fare \[pound\] +number +pound +1 feature$", output, re.M) and "Predicts fate: lost, saved" in output
    assert '"words": [' in ok(run("inspect", trained[0], "--json"))


def test_it_trains_on(trained: tuple[Path, str], run: Run) -> None:
    write_csv(Path("more.csv"), COLUMNS, NEW)
    before = zt.load(trained[0]).epochs_trained
    ok(run("train", trained[0], "--data", "more.csv", "--epochs", 1, "--out", "more.zt"))
    more = zt.load("more.zt")
    assert more.epochs_trained == before + 1 and more.pipeline is not None and more.pipeline.classes == ("lost", "saved")


def test_a_quantity(run: Run) -> None:
    """Friedman's table is not linear; the model must see that."""
    (x, y), (x_test, y_test) = zt.data.load("friedman", rows=1000)
    for name, a, b in (("train.csv", x, y), ("test.csv", x_test, y_test)):
        write_csv(Path(name), {**{f"x{k}": [f"{v:.5f}" for v in a[:, k]] for k in range(10)},
                               "yield [kg]": [f"{v:.4f}" for v in b[:, 0]]})
    output = ok(run("train", "train.csv", "--target", "yield [kg]", "--out", "f.zt", "--threads", 1, "--epochs", 60))
    assert "a quantity in kg" in output and re.search(r"wrong by [\d.]+ kg on average; always the mean, [\d.]+ kg, would", output)
    predicted = zt.load("f.zt").predict_table("test.csv")
    error = np.mean((predicted.values - y_test[:, 0]) ** 2)
    linear = np.mean((least_squares(x, y[:, 0], x_test) - y_test[:, 0]) ** 2)
    assert error < 0.4 * linear and error < 2.8  # the noise alone is 1
    assert ok(run("run", "f.zt", "test.csv")).splitlines()[0] == "yield [kg]"


def test_wrong_calls(run: Run, own: Path) -> None:
    fails(run("train", "table.csv"), "which column of table.csv to learn: --target NAME, one of a, b, c, sum")
    fails(run("train", "table.csv", "--target", "summ"), "did you mean 'sum'")
    fails(run("train", "table.csv", "--target", "sum", "--loss", "mse"), "--loss has no meaning")
    fails(run("train", "table.csv", "--target", "sum", "--ignore", "d"), "unknown column 'd'")
    write_csv(Path("mixed.csv"), {"the size": [1, 2, 3, 4, 5, 6, "six"], "y": range(7)})
    fails(run("train", "mixed.csv", "--target", "y"), "kind: --number 'the size' .*, --category 'the size'")
    fails(run("train", "digits_mlp", "--number", "a"), "is not a table, so --number has no meaning")
    fails(run("train", "digits_mlp", "--target", "a"), "--target a names a column of a table")


# -- images ----------------------------------------------------------------------------------------

NET = """
from ztorch import Sequential, layers as L
LOSS = "sparse_categorical_crossentropy"
LEARNING_RATE = 0.05

def build():
    return Sequential([L.Input((4, 4, 3)), L.Flatten(), L.Dense(2, activation="softmax")])
"""


def test_images_have_names(run: Run) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name, light in (("cat", 60), ("dog", 190)):
        Path("pets", name).mkdir(parents=True)
        for k in range(12):
            pixels = np.clip(rng.normal(light, 20, (4, 4, 3)), 0, 255).astype(np.uint8)
            image.fromarray(pixels).save(f"pets/{name}/{k}.png")
    Path("net.py").write_text(NET)
    ok(run("train", "net.py", "--data", "pets", "--epochs", 30, "--quiet", "--out", "pets.zt"))
    pipeline = zt.load("pets.zt").pipeline
    assert pipeline is not None and pipeline.classes == ("cat", "dog") and pipeline.record.source == "images"
    assert re.fullmatch(r"cat \d\d %\n", ok(run("run", "pets.zt", "pets/cat/0.png")))
    lines = ok(run("run", "pets.zt", "pets/cat/0.png", "pets/dog")).splitlines()
    assert [line.split()[:2] for line in lines] == [["pets/cat/0.png", "cat"], *(
        [str(path), "dog"] for path in sorted(Path("pets/dog").iterdir()))]
    fails(run("run", "pets.zt", "pets/cat/none.png"), "there is no file pets/cat/none.png")
    assert ok(run("run", "pets.zt", "pets/dog", "--classes", "-o", "y.csv")) == "Wrote y.csv: 12 rows\n"
    assert Path("y.csv").read_text() == "prediction\n" + "dog\n" * 12


@pytest.mark.cheap
@pytest.mark.parametrize(("rows", "width"), [(999, 32), (1000, 32), (1001, 64), (10_000, 64), (10_001, 128)])
def test_more_rows_have_a_wider_network(rows: int, width: int) -> None:
    from ztorch.commands.table_model import table_model

    table = zt.data.table({"a": [1.0, 2.5, 4.0], "y": [1.0, 2.0, 3.5]}, "y")
    model = table_model(zt.Pipeline(table), np.zeros((rows, 1)), np.zeros(rows), "t")
    widths = [layer.units for layer in model.layers if type(layer).__name__ == "Dense"]
    assert widths == [width, width // 2, 1, 1]
