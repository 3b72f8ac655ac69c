"""Tensors of torch.export that repeat numbers of their storage."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from ztorch.errors import ArtifactError

torch = pytest.importorskip("torch")
CONFIG = "data/weights/model_weights_config.json"


@pytest.mark.parametrize("rows", [4, 10**9])
def test_numbers_may_be_repeated_within_reason(tmp_path: Path, rows: int) -> None:
    net, path, other = torch.nn.Linear(3, 4), tmp_path / "net.pt2", tmp_path / "other.pt2"
    torch.export.save(torch.export.export(net, (torch.ones(2, 3),)), path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(CONFIG):
                document = json.loads(data)
                meta = document["config"]["weight"]["tensor_meta"]
                meta["sizes"][0]["as_int"], meta["strides"][0]["as_int"] = rows, 0
                data = json.dumps(document).encode()
            new.writestr(name, data)
    if rows > 4:
        with pytest.raises(ArtifactError, match="'weight' is larger than its 48 bytes"):
            zt.torch_export.load(other)
        return
    x = np.ones((2, 3), np.float32)
    want = x @ net.weight.detach().numpy()[:1].repeat(4, 0).T + net.bias.detach().numpy()
    np.testing.assert_allclose(zt.torch_export.load(other).predict(x, verbose=0), want, rtol=1e-5)
