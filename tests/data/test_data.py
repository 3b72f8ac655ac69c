"""Data sets by name, and tables from files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from ztorch import data
from ztorch.data.mnist import read_idx
from ztorch.errors import DataError, UnknownName


def test_digits() -> None:
    (x, y), (x_test, y_test) = data.load("digits")
    assert x.shape == (1433, 8, 8, 1) and x_test.shape == (364, 8, 8, 1)
    assert x.dtype == np.float32 and y.dtype == np.int32 and x.min() == 0 and x.max() == 1
    share = np.bincount(y_test) / np.bincount(np.concatenate([y, y_test]))
    assert np.all(abs(share - 0.2) < 0.01)


def test_digits_are_those_of_the_repository() -> None:
    original = pytest.importorskip("sklearn.datasets").load_digits()
    (x, y), (x_test, y_test) = data.load("digits")
    both = np.concatenate([x, x_test]).reshape(-1, 64) * 16
    key = np.lexsort((*both.T, np.concatenate([y, y_test])))
    key_original = np.lexsort((*original.data.T, original.target))
    assert np.array_equal(both[key], original.data[key_original])


def test_unknown_sets_suggest() -> None:
    assert {"digits", "fashion_mnist", "friedman", "mnist"} <= set(data.names())
    with pytest.raises(UnknownName, match="did you mean 'digits'"):
        data.load("digit")


# -- IDX -------------------------------------------------------------------------------------------


def idx(array: np.ndarray) -> bytes:
    return (bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            + array.astype(np.uint8).tobytes())


def mnist_files(folder: Path, zipped: bool, names: str) -> None:
    folder.mkdir(parents=True)
    for part, rows in (("train", 12), ("t10k", 5)):
        images = np.arange(rows * 28 * 28).reshape(rows, 28, 28) % 256
        for name, array in ((f"{part}-images{names}3-ubyte", images),
                            (f"{part}-labels{names}1-ubyte", np.arange(rows) % 10)):
            content = idx(array)
            if zipped:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
            else:
                (folder / name).write_bytes(content)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("names", ["-idx", ".idx"])
def test_mnist_from_a_folder(tmp_path: Path, zipped: bool, names: str) -> None:
    mnist_files(tmp_path / "m", zipped, names)
    (x, y), (x_test, y_test) = data.load("mnist", path=tmp_path / "m")
    assert x.shape == (12, 28, 28, 1) and x_test.shape == (5, 28, 28, 1) and x.max() == 1.0
    assert y.tolist() == [*range(10), 0, 1] and y_test.dtype == np.int32


def test_mnist_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mnist_files(tmp_path / "data" / "mnist", True, "-idx")
    monkeypatch.chdir(tmp_path)
    assert data.load("mnist")[0][0].shape == (12, 28, 28, 1)
    with pytest.raises(DataError, match=r"download train-images-idx3-ubyte\.gz.*fashion-mnist"):
        data.load("fashion_mnist")


def test_incomplete_and_mixed_files(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    mnist_files(folder, False, "-idx")
    labels = folder / "train-labels-idx1-ubyte"
    labels.write_bytes(idx(np.arange(7)))
    with pytest.raises(DataError, match="N labels: download both files again"):
        data.load("mnist", path=folder)
    labels.unlink()
    with pytest.raises(DataError, match="lacks train-labels-idx1-ubyte"):
        data.load("mnist", path=folder)


@pytest.mark.cheap
@pytest.mark.parametrize(("content", "message"), [
    (b"<html>not here</html>", "not an IDX file.*web page"),
    (b"", "not an IDX file"),
    (idx(np.zeros((3, 4)))[:-1], "should hold 12 bytes"),
    (idx(np.zeros((3, 4))) + b"x", "holds more"),
    (idx(np.zeros((3, 4)))[:7], "should hold"),
    (gzip.compress(idx(np.zeros((30, 40))), mtime=0)[:-9], "damaged or truncated"),
    (b"\0\0\x08\x03" + b"\xff" * 12, "should hold"),
])
def test_damaged_idx_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(path)


def test_other_idx_types(tmp_path: Path) -> None:
    path = tmp_path / "file"
    values = np.array([1.5, -2.0], ">f4")
    path.write_bytes(bytes([0, 0, 0x0D, 1, 0, 0, 0, 2]) + values.tobytes())
    assert read_idx(path).tolist() == [1.5, -2.0] and read_idx(path).dtype == np.float32


# -- tables ----------------------------------------------------------------------------------------


def table(tmp_path: Path, text: str, name: str = "t.csv", **how: object) -> data.Table:
    path = tmp_path / name
    path.write_text(text)
    return data.read_table(path, **how)  # type: ignore[arg-type]


def test_headers_are_detected_and_texts_become_classes(tmp_path: Path) -> None:
    t = table(tmp_path, "width,height,kind\n1,2.5,rose\n3,4,tulip\n5,6,rose\n\n")
    assert t.x.tolist() == [[1, 2.5], [3, 4], [5, 6]] and t.x.dtype == np.float32
    assert t.y is not None and t.y.tolist() == [0, 1, 0] and t.y.dtype == np.int32
    assert t.classes == ("rose", "tulip")
    assert t.columns == ("width", "height") and t.label == "kind"


def test_no_header(tmp_path: Path) -> None:
    t = table(tmp_path, "1,2,0\n3,4,1\n")
    assert t.x.shape == (2, 2) and t.y is not None and t.y.tolist() == [0, 1] and t.columns == ()
    assert t.classes is None


@pytest.mark.cheap
@pytest.mark.parametrize(("label", "y"), [("b", [2, 5]), (0, [1, 4]), (-2, [2, 5])])
def test_labels_by_name_and_position(tmp_path: Path, label: str | int, y: list) -> None:
    t = table(tmp_path, "a,b,c\n1,2,3\n4,5,6\n", label=label)
    assert t.y is not None and t.y.tolist() == y and t.x.shape == (2, 2)


def test_separators_quotes_and_marks(tmp_path: Path) -> None:
    t = table(tmp_path, '\ufeff"a; x";"b"\n1,5;2\n'.replace("1,5", "1.5"))
    assert t.columns == ("a; x",) and t.x.tolist() == [[1.5]]
    t = table(tmp_path, "1\t2.5\n3\t4.5\n", "t.tsv")
    assert t.y is not None and t.y.dtype == np.float32
    t = table(tmp_path, "1,2\n3,4\n", label=None)
    assert t.y is None and t.x.shape == (2, 2)


@pytest.mark.cheap
@pytest.mark.parametrize(("text", "how", "message"), [
    ("a,b\n1,2\nx,4\n", {}, r"line 3, column 1 \(a\): 'x' is not a number"),
    ("1,2\n,4\n", {}, "line 2, column 1: the cell is empty"),
    ("1,2\n4,\n", {}, "line 2, column 2: the cell is empty"),
    ("1,\n4,5\n", {}, "line 1, column 2: the cell is empty"),
    (",b\n1,2\n\n4, \n", {}, r"line 4, column 2 \(b\): the cell is empty"),
    ("1,2,3\n4,5,6,7\n", {}, "line 2: 4 cells where the first row has 3"),
    ("1,2,3\n4,5,6,7\n", {"label": None}, "line 2: 4 cells where the first row has 3"),
    ("a,b\n1,2\n-4e38,5\n", {}, r"holds -4e\+38 in row 1 of x, feature 0 \(a\), beyond the range"),
    ("1,2,3\n4,5\n", {}, "line 2: 2 cells where the first row has 3"),
    ("", {}, "is empty"),
    ("a,b\n", {}, "header but no rows"),
    ("1\n2\n", {}, "one column"),
    ("a,b\n1,2\n", {"label": "bb"}, "did you mean 'b'"),
    ("1,2\n", {"label": "b"}, "no header"),
    ("a,b,a\n1,2,3\n", {}, "two columns named 'a'; rename one"),
    ("a;b;c\n1,5;2,5;0\n", {}, r"line 2, column 1 \(a\): '1,5' has a decimal comma; write 1.5 "),
    ("1,5;2,5;0\n-3,5;4,25;1\n", {}, "line 1, column 1: '1,5' has a decimal comma"),
    ("a;b\n1.5;2\n2.5;-1.234,5\n", {}, r"line 3, column 2 \(b\): '-1.234,5' has .* write -1234.5 "),
    ('a,b\n"1,5",1\n', {}, r"column 1 \(a\): '1,5' has a decimal comma"),
    ('a,b\n"1,234",1\n', {}, "'1,234' has a comma; write 1234 if it separates thousands, 1.234 if it is decimal"),
    ('a,b\n"$1,000",1\n', {}, r"'\$1,000' is not a plain number; write 1000, or use zt.data.table"),
    ("a,b\n1,2\nnan,5\n", {}, r"holds nan in row 1 of x, feature 0 \(a\), not a finite number; fill gaps"),
    ("a,b\n1,2\n3,inf\n", {}, "the label 'inf' in row 1 is no finite number"),
    ("a,b\n1,1e39\n3,0\n", {}, "the label '1e39' in row 0 is no finite number of float32"),
    ("1,2\n", {"label": 5}, "2 columns, no column 5"),
])
def test_wrong_tables(tmp_path: Path, text: str, how: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        table(tmp_path, text, **how)


def test_what_is_no_text_or_no_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for content in (b"1,2\n\xff,4\n", "1,2\n3,4\n".encode("utf-16"), b"1,2\n" * 5000 + b"\xff,3\n"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"t\.csv is not text in UTF-8 .*save the file as UTF-8"):
            data.read_table(path)
    for wrong, message in ((tmp_path / "none.csv", "there is no file .*none.csv"),
                           (tmp_path, "is a folder; pass a file in it"), ("", "name .* is empty"),
                           ("/dev/null", "is not a regular file")):
        with pytest.raises(DataError, match=message):
            data.read_table(wrong)


def test_numpy_files(tmp_path: Path) -> None:
    x, y = np.ones((4, 3)), np.array([0, 1, 1, 0])
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.savez(tmp_path / "texts.npz", data=x, target=np.array(["b", "a", "a", "b"]))
    np.save(tmp_path / "a.npy", np.column_stack([x, y]))
    for name in ("a.npz", "a.npy"):
        t = data.read_table(tmp_path / name)
        assert t.x.shape == (4, 3) and t.y is not None and t.y.tolist() == y.tolist()
    t = data.read_table(tmp_path / "texts.npz")
    assert t.classes == ("a", "b") and t.y is not None and t.y.tolist() == [1, 0, 0, 1]
    assert data.read_table(tmp_path / "a.npy", label=None).x.shape == (4, 4)


def test_numpy_files_of_keras(tmp_path: Path) -> None:
    x, y = np.arange(24).reshape(4, 2, 3), np.array([3, 1, 2, 1], np.uint8)
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x[:2] + 1, y_test=y[1:3])
    t = data.read_table(tmp_path / "a.npz")
    assert t.test is not None and t.y is not None and t.label == "y_train"
    np.testing.assert_array_equal(t.x, x)
    np.testing.assert_array_equal(t.y, y)
    np.testing.assert_array_equal(t.test[0], x[:2] + 1)
    np.testing.assert_array_equal(t.test[1], y[1:3])
    np.savez(tmp_path / "b.npz", x=x, y=np.array(["b", "a", "c", "a"]), x_test=x[:2],
             y_test=np.array(["long", "b"]))
    t = data.read_table(tmp_path / "b.npz")
    assert t.test is not None and t.y is not None and t.classes == ("a", "b", "c", "long")
    assert (t.y.tolist(), t.test[1].tolist()) == ([1, 0, 2, 0], [3, 1])
    np.savez(tmp_path / "c.npz", x=x, y=y, x_test=x)  # nothing to score
    assert data.read_table(tmp_path / "c.npz").test is None
    np.savez(tmp_path / "d.npz", x=x, y=y, x_test=x, y_test=np.eye(4))
    with pytest.raises(DataError, match=r"y of shape \(4,\) and y_test of shape \(4, 4\) have different shapes"):
        data.read_table(tmp_path / "d.npz")


def test_wrong_numpy_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", z=np.ones(3))
    with pytest.raises(DataError, match="no array 'x'; it has z"):
        data.read_table(tmp_path / "a.npz")
    np.save(tmp_path / "b.npy", np.array([{}], dtype=object))
    with pytest.raises(DataError, match="cannot be read"):
        data.read_table(tmp_path / "b.npy")
    (tmp_path / "c.npz").write_bytes(b"PK junk")
    with pytest.raises(DataError, match="cannot be read"):
        data.read_table(tmp_path / "c.npz")
    with pytest.raises(DataError, match="no file"):
        data.read_table(tmp_path / "d.csv")
    (tmp_path / "e.parquet").write_bytes(b"")
    with pytest.raises(DataError, match="not a kind of table"):
        data.read_table(tmp_path / "e.parquet")


@pytest.mark.cheap
@pytest.mark.parametrize(("name", "hint"), [
    ("read_csv", "here it is zt.data.csv(path, target=...)"), ("DataLoader", "here it is not needed: fit takes"),
    ("tabel", "did you mean 'table'"), ("TypedTabel", "did you mean 'TypedTable'"), ("qqq", "no attribute 'qqq'")])
def test_unknown_readers_suggest(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=r"module 'ztorch\.data' has no attribute") as error:
        getattr(data, name)
    assert hint in str(error.value)


@pytest.mark.cheap
@pytest.mark.parametrize(("name", "sum_of_x", "sum_of_y"), [
    ("friedman", 165.3913470013067, 453.6458671092987), ("gaps", 10393, 12122), ("shapes", 51364.50710557541, 112),
    ("shape_masks", 49065.99321277952, 25091)])
def test_computed_sets_stay_the_same(name: str, sum_of_x: float, sum_of_y: float) -> None:
    """On each machine and in each version: scores of models are compared by them."""
    (x, y), (x_test, _) = data.load(name, rows=40)
    assert len(x) == 32 and len(x_test) == 8
    np.testing.assert_allclose([x.sum(dtype=np.float64), y.sum(dtype=np.float64)], [sum_of_x, sum_of_y], rtol=1e-6)
