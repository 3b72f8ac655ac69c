"""Archives of arrays and of other files: written and read back, or refused."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from ztorch.errors import WeightsError
from ztorch.files.npz import packed
from ztorch.files.zips import StoredZip


def test_arrays_are_packed_as_numpy_reads_them() -> None:
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.array(["a", "b"])}
    with np.load(io.BytesIO(packed(arrays))) as stored:
        assert stored.files == ["x", "y"]
        np.testing.assert_array_equal(stored["x"], arrays["x"])
        np.testing.assert_array_equal(stored["y"], arrays["y"])


def stored(name: str) -> StoredZip:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, b"12345")
    return StoredZip(file.getvalue(), "weights.pt")


@pytest.mark.cheap
@pytest.mark.parametrize("name", ["/etc/x", "a\\x", "C:x", "a/../x", ".."])
def test_members_outside_of_the_folder_are_refused(name: str) -> None:
    with pytest.raises(WeightsError, match=r"weights\.pt has a member named .* outside of its folder"):
        stored(name)


def test_other_names_may_have_dots() -> None:
    archive = stored("a..b/.c")
    assert archive.names == ["a..b/.c"] and archive.read("a..b/.c") == b"12345" and archive.size("a..b/.c") == 5
