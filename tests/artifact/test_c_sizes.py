"""C libraries of several sizes: a C program gets the same results as Python, for any rows and lengths."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.cases.c_programs import STRICT, needs_gcc, run
from ztorch import layers as L
from ztorch.compile.c_library import export_c

pytestmark = needs_gcc

MAIN = """
#include <stdio.h>
#include "words.h"
static float x[5 * 6 * 3], y[5 * 6 * 2], t[5 * 6 * 2];
static int lengths[5];
int main(void)
{
    unsigned long rows, time, k;
    FILE *in = fopen("in.bin", "rb"), *out = fopen("out.bin", "wb");
    if (!in || !out || words_abi() != WORDS_ABI) return 1;
    while (fread(&rows, sizeof rows, 1, in) == 1) {
        float loss = 0;
        int ragged;
        if (fread(&time, sizeof time, 1, in) != 1 || fread(&ragged, sizeof ragged, 1, in) != 1
            || fread(lengths, sizeof *lengths, rows, in) != rows
            || fread(x, sizeof *x, rows * time * 3, in) != rows * time * 3
            || fread(t, sizeof *t, rows * time * 2, in) != rows * time * 2) return 2;
        if (words_predict_any(x, ragged ? lengths : 0, y, rows, time)) return 3;
        if (words_train_step_any(x, t, 0, ragged ? lengths : 0, &loss, rows, time)) return 4;
        fwrite(y, sizeof *y, rows * time * 2, out);
        fwrite(&loss, sizeof loss, 1, out);
    }
    for (k = 0; k < 5; k++) lengths[k] = 7;
    if (!words_predict_any(x, 0, y, 6, 1) || !words_predict_any(x, 0, y, 1, 7)
        || !words_predict_any(x, 0, y, 0, 1) || !words_predict_any(x, lengths, y, 1, 6)) return 5;
    return fclose(in) || fclose(out);
}
"""


@pytest.mark.parametrize("device", ["cpu", "c"])
def test_any_rows_and_lengths(tmp_path: Path, device: str) -> None:
    model = zt.Sequential([L.Input(("time", 3)), L.BatchNormalization(), L.MultiHeadAttention(1), L.GRU(3, return_sequences=True),
                           L.Dense(2)], name="words", seed=1)
    options = {"batch_size": (1, 5), "sizes": (2, 6), "loss": "mse",
               "optimizer": zt.optimizers.SGD(0.1)}
    files = export_c(model.trace(**options), tmp_path, device=device)
    assert "words_sizes.c" in {path.name for path in files}
    row_sizes = re.findall(r"#define WORDS_(\w+)_SIZE (\d+)UL /\* numbers in a row",
                           (tmp_path / "words.h").read_text())
    assert row_sizes == [("INPUT", "18"), ("OUTPUT", "12"), ("TARGET", "12")]  # and no lengths
    program = model.compile("cpu", **options)
    random = np.random.default_rng(0)
    file_bytes, expected = b"", []
    for rows, time, ragged in ((1, 1, 0), (3, 2, 0), (5, 6, 0), (2, 5, 0), (4, 6, 1), (1, 4, 1)):
        lengths = random.integers(1, time + 1, rows) if ragged else np.full(rows, time)
        lengths[0] = time
        x = random.normal(size=(rows, time, 3)).astype(np.float32)
        t = random.normal(size=(rows, time, 2)).astype(np.float32)
        file_bytes += (np.array([rows, time], np.uint64).tobytes() + np.int32(ragged).tobytes()
                       + lengths.astype(np.int32).tobytes() + x.tobytes() + t.tobytes())
        inputs = [row[:n] for row, n in zip(x, lengths, strict=True)]
        predicted = program.predict(inputs)
        loss = program.train_on_batch(inputs, [row[:n] for row, n in zip(t, lengths, strict=True)])
        expected.append((lengths, predicted, loss))
    (tmp_path / "in.bin").write_bytes(file_bytes)
    (tmp_path / "main.c").write_text(MAIN)
    code = "libwords.a" if device == "cpu" else "words.c"
    flags = STRICT if device == "cpu" else ("-O0", "-fno-math-errno")
    run("gcc", "-std=c89" if device == "cpu" else "-std=c99", *flags, "main.c", "words_sizes.c",
        code, "-o", "main", cwd=tmp_path)
    run("./main", cwd=tmp_path)
    out = np.fromfile(tmp_path / "out.bin", np.float32)
    for lengths, predicted, loss in expected:
        rows, time = len(lengths), lengths.max()
        y, out = out[:rows * time * 2].reshape(rows, time, 2), out[rows * time * 2:]
        for row, n, wanted in zip(y, lengths, predicted, strict=True):
            if device == "cpu":
                np.testing.assert_array_equal(row[:n], wanted)
            np.testing.assert_allclose(row[:n], wanted, rtol=0, atol=1e-5)
        assert out[0] == pytest.approx(loss, rel=1e-5)
        out = out[1:]
    assert not out.size


IMAGES = """
#include <stdio.h>
#include "fields.h"
static float x[3 * 6 * 5 * 2], y[3 * 5 * 5 * 3], t[3 * 5 * 5 * 3];
static int heights[3], widths[3];
int main(void)
{
    unsigned long n[5], rows, numbers;
    FILE *in = fopen("in.bin", "rb"), *out = fopen("out.bin", "wb");
    if (!in || !out) return 1;
    while (fread(n, sizeof *n, 5, in) == 5) {
        float loss = 0;
        rows = n[0];
        numbers = rows * n[3] * n[4] * 3;
        if (fread(heights, sizeof *heights, rows, in) != rows
            || fread(widths, sizeof *widths, rows, in) != rows
            || fread(x, sizeof *x, rows * n[1] * n[2] * 2, in) != rows * n[1] * n[2] * 2
            || fread(t, sizeof *t, numbers, in) != numbers) return 2;
        if (fields_predict_any(x, heights, widths, y, rows, n[1], n[2])) return 3;
        if (fields_train_step_any(x, t, 0, heights, widths, &loss, rows, n[1], n[2])) return 4;
        fwrite(y, sizeof *y, numbers, out);
        fwrite(&loss, sizeof loss, 1, out);
    }
    if (!fields_predict_any(x, 0, 0, y, 1, 7, 5) || !fields_predict_any(x, 0, 0, y, 1, 1, 6)
        || !fields_predict_any(x, 0, 0, y, 1, 0, 5)
        || !fields_train_step_any(x, t, 0, 0, 0, (float *)0, 1, 0, 1)) return 5;
    return fclose(in) || fclose(out);
}
"""


def test_several_axes_and_outputs_of_other_sizes(tmp_path: Path) -> None:
    model = zt.Sequential([L.Input(("height", "width", 2)),
                           L.Conv2D(4, 3, strides=2, padding="same"), L.UpSampling2D(2),
                           L.Conv2D(3, 2)], name="fields", seed=1)
    options = {"batch_size": (1, 3), "sizes": {"height": (3, 6), "width": 5}, "loss": "mse",
               "optimizer": zt.optimizers.SGD(0.1)}
    export_c(model.trace(**options), tmp_path)
    header = (tmp_path / "fields.h").read_text()
    assert "x: float[rows_count][height_count][width_count][2]" in header
    assert "y: float[rows_count][(height_count + 1) / 2 * 2 - 1]" in header
    program = model.compile("cpu", **options)
    random = np.random.default_rng(0)
    inputs, expected = b"", []
    for rows, height, width in ((1, 2, 5), (3, 5, 4), (2, 6, 5)):
        heights = np.append(random.integers(1, height + 1, rows - 1), height).astype(np.int32)
        widths = np.append(random.integers(1, width + 1, rows - 1), width).astype(np.int32)
        x = random.normal(size=(rows, height, width, 2)).astype(np.float32)
        high, wide = ((n + 1) // 2 * 2 - 1 for n in (height, width))
        t = random.normal(size=(rows, high, wide, 3)).astype(np.float32)
        inputs += (np.array([rows, height, width, high, wide], np.uint64).tobytes()
                   + heights.tobytes() + widths.tobytes() + x.tobytes() + t.tobytes())
        predicted = program.predict([row[:h, :w] for row, h, w in zip(
            x, heights, widths, strict=True)])
        loss = program.train_on_batch(
            [row[:h, :w] for row, h, w in zip(x, heights, widths, strict=True)],
            [row[:y.shape[0], :y.shape[1]] for row, y in zip(t, predicted, strict=True)])
        expected.append((t.shape, predicted, loss))
    (tmp_path / "in.bin").write_bytes(inputs)
    (tmp_path / "main.c").write_text(IMAGES)
    run("gcc", "-std=c89", *STRICT, "main.c", "fields_sizes.c", "libfields.a", "-o", "main",
        cwd=tmp_path)
    run("./main", cwd=tmp_path)
    out = np.fromfile(tmp_path / "out.bin", np.float32)
    for shape, predicted, loss in expected:
        y, out = np.split(out, [int(np.prod(shape))])
        for row, want in zip(y.reshape(shape), predicted, strict=True):
            np.testing.assert_array_equal(row[:want.shape[0], :want.shape[1]], want)
        assert out[0] == pytest.approx(loss, rel=1e-5)
        out = out[1:]
    assert not out.size


def test_one_size_needs_no_choice(tmp_path: Path) -> None:
    model = zt.Sequential([L.Input((3,)), L.Dense(2)], name="words")
    files = {path.name for path in export_c(model.trace(2), tmp_path)}
    assert files == {"libwords.so", "libwords.a", "words_example.c", "words.h"}
    assert "_any" not in (tmp_path / "words.h").read_text()


SKIPS = """
#include <stdio.h>
#include "skips.h"
static float x[2 * 8], y[2 * 8];
static int lengths[2] = {4, 6};
int main(void)
{
    FILE *in = fopen("in.bin", "rb"), *out = fopen("out.bin", "wb");
    if (!in || !out || fread(x, sizeof *x, 16, in) != 16) return 1;
    if (!skips_predict_any(x, 0, y, 2, 6) || !skips_predict_any(x, lengths, y, 2, 8)) return 2;
    lengths[1] = 8;
    if (skips_predict_any(x, lengths, y, 2, 8)) return 3;
    fwrite(y, sizeof *y, 16, out);
    return fclose(in) || fclose(out);
}
"""


def skips(*layers: L.Layer) -> zt.Model:
    """A sequence and the means of four steps each, added."""
    x = L.Input(("time", 1))
    y = L.Add()([x, L.UpSampling1D(4)(L.AveragePooling1D(4)(x))])
    for layer in layers:
        y = layer(y)
    return zt.Model(x, y, name="skips", seed=1)


def built(folder: Path, rows: np.ndarray, main: str) -> np.ndarray:
    """The output of a C program that reads rows."""
    (folder / "in.bin").write_bytes(rows.tobytes())
    (folder / "main.c").write_text(main)
    run("gcc", "-std=c89", *STRICT, "main.c", "skips_sizes.c", "libskips.a", "-o", "main",
        cwd=folder)
    run("./main", cwd=folder)
    return np.fromfile(folder / "out.bin", np.float32).reshape(rows.shape)


def test_sizes_that_are_multiples(tmp_path: Path) -> None:
    model = skips(L.Conv1D(1, 3, padding="same"))
    export_c(model.trace(batch_size=2, sizes=8), tmp_path)
    assert "Sizes along time must be multiples of 4" in (tmp_path / "skips.h").read_text()
    rows = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    y = built(tmp_path, rows, SKIPS)
    short, whole = model.compile("cpu", batch_size=2, sizes=8).predict(
        [rows[0, :4, None], rows[1, :, None]])
    np.testing.assert_array_equal(y[0, :4], short[:, 0])
    np.testing.assert_array_equal(y[1], whole[:, 0])


def test_steps_that_need_no_lengths(tmp_path: Path) -> None:
    """A program that computes each step by itself asks for no sizes of rows."""
    export_c(skips().trace(batch_size=2, sizes=8), tmp_path)
    rows = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    y = built(tmp_path, rows, SKIPS.replace("(x, 0, y", "(x, y").replace("(x, lengths, y", "(x, y")
              .replace("|| !skips_predict_any(x, y, 2, 8)", ""))
    wanted = rows + rows.reshape(2, 2, 4).mean(2).repeat(4, 1)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-6)
