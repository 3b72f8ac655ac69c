"""Programs with several inputs and outputs: wrong ids, inputs, targets and losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.artifacts import changed
from tests.program.image_and_table import (
    HOW,
    IMAGE,
    KIND,
    META,
    SIZE,
    X,
    Y,
    compiled,
    native,
)
from ztorch import layers as L
from ztorch.errors import (
    ArtifactError,
    ConfigError,
    DataError,
    NonFiniteLoss,
    UnknownName,
)
from ztorch.program.program import Program


@pytest.fixture(scope="module")
def program() -> Program:
    return compiled()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("several") / "two.zt"
    native(optimizer="adam", **HOW).save(path)
    return path.read_bytes()


@pytest.mark.parametrize(("change", "message"), [
    (lambda m: m["program"]["classes"].update(kind=0), "program.classes.kind is 0; it must be an integer"),
    (lambda m: m["program"]["loss"].update(kind={"name": 3}), "program.loss.kind.name is 3"),
    (lambda m: m["program"]["layers"][0].update(output_shape=[1, [2]]), r"output_shape\[0\] is 1; it "
                                                                        r"must be a list"),
    (lambda m: m["program"]["weights"][0].pop("name"), r"weights\[0\].name is missing"),
    *((lambda m, name=name: m["targets"][0]["spec"]["functions"][0]["inputs"][0].update(name=name),
       r"inputs is .*; it must be the inputs x") for name in ("x", "x/", "z/image", "")),
], ids=lambda x: "given" if callable(x) else str(x))
def test_manifests_that_are_wrong(artifact: bytes, tmp_path: Path, change: Any,
                                  message: str) -> None:
    (tmp_path / "two.zt").write_bytes(changed(change, artifact))
    with pytest.raises(ArtifactError, match=message):
        zt.load(tmp_path / "two.zt")


def test_ids_are_checked_by_input() -> None:
    words, size = L.Input((5,), dtype="int32", name="words"), L.Input((2,), name="size")
    h = L.Flatten()(L.Embedding(10, 3)(words))
    program = zt.Model([words, size], L.Dense(1)(L.Concatenate()([h, size]))).compile(
        "cpu", batch_size=4, threads=1)
    ids = np.arange(20).reshape(4, 5) % 10
    assert program.predict([ids, np.ones((4, 2))]).shape == (4, 1)
    ids[2, 3] = 10
    with pytest.raises(DataError, match=r"x\['words'\] holds 10 in row 2; layer 'embedding' takes "
                                        r"integers from 0 to 9"):
        program.predict({"words": ids, "size": np.ones((4, 2))})


@pytest.mark.parametrize(("x", "message"), [
    (IMAGE, r"x is one ndarray; the model has 2 inputs \(image, meta\): pass a list"),
    ([IMAGE], "x has 1 parts; the model has 2 inputs"),
    ({"image": IMAGE}, "x lacks 'meta'"),
    ({**X, "mta": META}, r"unknown input 'mta'; did you mean 'meta'"),
    ([IMAGE, META[:-1]], r"x\['image'\] has 20 rows but x\['meta'\] has 19"),
    ([META, IMAGE], r"x\['image'\] has shape \(20, 3\), but the model takes \(N, 4\)"),
    ([IMAGE, None], r"x\['meta'\] is None"),
    ([], "x has 0 parts"),
    (iter([(IMAGE, META)]), r"x of batch 0 is one ndarray"),
])
def test_wrong_inputs(program: Program, x: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        program.predict(x)


@pytest.mark.parametrize(("y", "message"), [
    (None, "y is missing: .*an array for each output"),
    (KIND, r"y is one ndarray; the model has 2 outputs with a loss \(kind, size\)"),
    ({"kind": KIND}, "y lacks 'size'"),
    ([KIND, SIZE[:-1]], r"x has 20 rows but y\['size'\] has 19"),
    ([KIND + 1, SIZE], r"label 3 in row \d+ of y\['kind'\] is out of range.*0\.\.2"),
    ([KIND, SIZE * np.nan], r"y\['size'\] holds nan in row 0"),
])
def test_wrong_targets(program: Program, y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        program.fit(X, y, verbose=0)


def test_a_loss_that_is_not_finite_names_the_input() -> None:
    bad = np.where(np.arange(20)[:, None] == 3, np.nan, META)
    with pytest.raises(NonFiniteLoss, match=r"row 3 of this batch of x\['meta'\] is not finite"):
        compiled().fit([IMAGE, bad], Y, shuffle=False, verbose=0)


@pytest.mark.parametrize(("how", "kind", "message"), [
    ({"loss": ["mse"]}, ConfigError, r"loss has length 1, but there are 2 outputs \(kind, size\)"),
    ({"loss": {"kin": "mse"}}, ConfigError, r"unknown output 'kin'; did you mean 'kind'"),
    ({"loss": {"kind": "msee"}}, UnknownName, r"did you mean 'mse'"),
    ({"loss": {}}, ConfigError, r"loss=\{\} contains no loss; add one, such as loss=\{'kind': 'mse'\}"),
    ({"loss": {"kind": "mse"}}, ConfigError, r"output 'size' has metrics or a loss weight but no "
                                             r"loss"),
    ({"metrics": "accuracy"}, ConfigError, r"metrics='accuracy': a model with several outputs"),
    ({"loss_weights": {"kind": "a"}}, ConfigError, r"loss_weights must be a finite number, not 'a'"),
    ({"metrics": {"kind": [], "size": ["loss"]}}, UnknownName, r"unknown metric 'loss'"),
], ids=str)
def test_impossible_compiles(how: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        compiled(**how)
