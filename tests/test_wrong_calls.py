"""Every public function and method called with invalid arguments: it works, or one of our errors explains the fault; no
raw exception comes out from deep inside."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ztorch as zt
from tests.cases.grouping import together
from ztorch import layers as L
from ztorch.config import Named
from ztorch.errors import ConfigError, UnknownName, ZtorchError

ODD: list[Any] = [None, 3.5, -1, "nonsense", b"x", [], {}, object()]
X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
Y = np.arange(8) % 3
# Methods for the compiler's own rooms: no part of the public interface.
INNER = {"add_activity_losses", "take_states", "compile_now", "compile_when_known", "compile_if_due", "compile_later",
         "learn_shapes", "make_weights", "prepare_class", "set_rules", "take_rules", "take_policy", "compute_output_shape",
         "adopt", "add_weight", "call", "called", "called_masked", "without_mask", "leaves", "named_outputs", "need_memory",
         "need_rank", "prepare", "refuse", "trace", "borrow", "start_at", "resume",
         "named", "score_names", "need", "need_one_batch", "results", "running", "keep", "predict_for"}


def model() -> zt.Sequential:
    return zt.Sequential([L.Input((4,)), L.Dense(3, activation="softmax")])


def program() -> zt.Program:
    return model().compile("cpu:scalar", batch_size=8, optimizer="adam",
                           loss="sparse_categorical_crossentropy")


def written() -> zt.Sequential:
    """A model that goes on writing."""
    return zt.Sequential([L.Input((4,), dtype="int32"), L.Embedding(5, 3), L.Dense(5)])


GOOD: dict[str, Callable[[], Any]] = {
    "x": lambda: X, "y": lambda: Y, "path": lambda: "a.safetensors", "device": lambda: "cpu:scalar",
    "weights": lambda: model().get_weights(), "prompt": lambda: [1], "length": lambda: 4,
    "config": lambda: model().get_config(), "text": lambda: model().to_json(),
    "layer": lambda: L.Dense(3), "model": model, "function": lambda: lambda a: a + 1.0,
    "name": lambda: "digits", "size": lambda: (4, 4), "layers": lambda: [L.Dense(3)],
    "inputs": lambda: INPUT, "outputs": lambda: OUTPUT, "initial_learning_rate": lambda: 0.1,
    "decay_steps": lambda: 10, "first_decay_steps": lambda: 10, "decay_rate": lambda: 0.5, "boundaries": lambda: [1, 2],
    "values": lambda: [1.0, 2.0, 3.0], "filepath": lambda: "b.safetensors", "spec": lambda: "adam",
    "filename": lambda: "log.csv", "schedule": lambda: lambda epoch: 0.1, "threads": lambda: 1, "loss": lambda: "mse",
    "data": lambda: X, "shape": lambda: (2, 3), "fill_value": lambda: 1.0, "start": lambda: 0,
    "stop": lambda: 3, "n_rows": lambda: 2, "low": lambda: 0, "high": lambda: 5, "n": lambda: 4,
    "primals": lambda: [zt.tensor(1.0)], "tangents": lambda: [zt.tensor(1.0)], "seed": lambda: 1,
    "source": lambda: {"a": [1, 2], "b": ["x", "y"]}, "table": lambda: {"a": [1, 2]},
    "array": lambda: X, "expected": lambda: 0.0, "new": lambda: 1.0, "index": lambda: 0, "lane": lambda: 0, "mask": lambda: 1, "blocks": lambda: 2,
    "backup_dir": lambda: "backup", "target_class_ids": lambda: [0], "num_classes": lambda: 3,
    "fn": lambda: zt.ops.abs, "recall": lambda: 0.5, "precision": lambda: 0.5, "specificity": lambda: 0.5,
    "sensitivity": lambda: 0.5, "metric": lambda: "accuracy", "inner_optimizer": lambda: "adam",
    "optimizer_map": lambda: lambda path: zt.optimizers.SGD(), "default_optimizer": zt.optimizers.SGD,
    "trainable_variables": lambda: model().get_weights(), "non_trainable_variables": list,
    "tree": lambda: {"w": zt.ones(2)}, "module": lambda: None}
FILES = {("ztorch.arrays.saving", "save_tensors"): "x.safetensors",
         ("ztorch.arrays.saving", "load_tensors"): "t.safetensors",
         ("ztorch.program.program", "load"): "p.zt", ("ztorch.data.csv_files", "csv"): "t.csv",
         ("ztorch.data.tables", "read_table"): "t.csv", ("ztorch.data.text_files", "text"): "t.csv",
         ("ztorch.data.images", "image_folder"): "images",
         ("ztorch.interchange.onnx.load", "load"): "m.onnx",
         ("ztorch.interchange.onnx.save", "save"): "other.onnx"}
INPUT = L.Input((4,))
OUTPUT = L.Dense(3)(INPUT)


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for room, names in ((zt, dir(zt)), (zt.data, zt.data.__all__), (zt.onnx, zt.onnx.__all__)):
        yield from ((f"{room.__name__}.{n}", result) for n in names
                    if inspect.isfunction(result := getattr(room, n)))


def classes() -> Iterator[tuple[str, Callable[..., Any]]]:
    yield from (("Sequential", zt.Sequential), ("Model", zt.Model))
    for room in (zt.callbacks, zt.initializers, zt.losses, zt.metrics, zt.optimizers, zt.schedules):
        for name, kind in inspect.getmembers(room, inspect.isclass):
            if f"{kind.__module__}.".startswith(f"{room.__name__}.") and name[0] != "_" and (
                    issubclass(kind, (Named, zt.callbacks.Callback))):
                yield name, kind


def methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    for make in (model, program):
        kind = zt.Program if make is program else zt.Sequential
        for name, result in inspect.getmembers(kind):
            if name[0] != "_" and name not in INNER and callable(result):
                yield f"{kind.__name__}.{name}", lambda make=make, name=name: getattr(make(), name)


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return {n: p for n, p in inspect.signature(function).parameters.items()
            if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}


def given(function: Callable[..., Any], but: str) -> dict[str, Any]:
    """Valid arguments for parameters without a default."""
    result = {n: GOOD[n]() for n, p in parameters(function).items()
              if p.default is p.empty and n != but}
    file = FILES.get((function.__module__, function.__name__))
    return {**result, "path": file} if file and "path" in result else result


def tried(function: Callable[..., Any]) -> int:
    """How many odd arguments were refused."""
    refused = 0
    for name in parameters(function):
        for odd in ODD:
            try:
                made = function(**given(function, name), **{name: odd})
                if inspect.isgenerator(made):
                    next(made)
            except ZtorchError as error:
                refused += 1
                assert len(str(error)) > 10
            except NotImplementedError:  # bases, which nobody calls
                pass
    return refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Valid files, for functions that read some."""
    made = tmp_path_factory.mktemp("files")
    program().save(made / "p.zt")
    zt.onnx.save(model(), made / "m.onnx")
    zt.save_tensors(zt.ones(2), made / "t.safetensors")
    (made / "t.csv").write_text("a,b,c\n1,2,3\n4,5,6\n7,8,9\n")
    (made / "images" / "cat").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(made / "images" / "cat" / "1.png")
    return made


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.chdir(folder)


@together()
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [pytest.param(f, id=n) for n, f in [*functions(), *classes()]])
def test_wrong_arguments(function: Callable[..., Any]) -> None:
    if tried(function) == 0:
        assert not any(p.default is p.empty for p in parameters(function).values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bound", [pytest.param(f, id=n) for n, f in methods()])
def test_wrong_arguments_of_methods(bound: Callable[[], Callable[..., Any]]) -> None:
    tried(bound())


def test_odd_arguments_of_writing() -> None:
    writer = written().compile("cpu:scalar", decode=True)
    for name in ("prompt", "length", "temperature", "top_k", "top_p", "repetition_penalty", "stop",
                 "seed", "stream"):
        for odd in ODD:
            try:
                list(writer.generate(**{"prompt": [1], "length": 2, name: odd}))
            except ZtorchError as error:
                assert name in str(error) or name == "prompt"


@together()
@pytest.mark.parametrize(("call", "kind", "message"), [
    (lambda: model().compile("cpu", "mse", "adam"), ConfigError,
     r"Sequential\.compile takes 2 \(device, loss\) without a name, not 3; name the others: batch_size=, "
     "optimizer="),
    (lambda: model().compile(optimiser="adam"), UnknownName, "did you mean 'optimizer'"),
    (lambda: program().fit(), ConfigError, r"^Program\.fit needs x: Program\.fit\(x\)$"),
    (lambda: program().evaluate(X, Y, sample_weigths=Y), UnknownName, "mean 'sample_weight'"),
    (lambda: zt.load(None), ConfigError, r"^load\(path=\.\.\.\) must be the name of a file, not None"),
    (lambda: zt.load(b"x.zt"), ConfigError, r"the name of a file, not b'x\.zt'"),
    (lambda: zt.callbacks.EarlyStopping(patiance=3), UnknownName, "EarlyStopping 'patiance'; did you"),
    (lambda: zt.callbacks.EarlyStopping("loss", monitor="x"), ConfigError, "multiple values"),
    (lambda: zt.data.load("mnist", pth="."), UnknownName, "'pth'; did you mean 'path'"),
    (lambda: zt.data.load("mnist", path=3), ConfigError, "the name of a file, not 3"),
    (lambda: model().get_layer(index=1), ConfigError, "has 1 layers, none at index 1"),
    (lambda: model().compile("adm", "mse"), UnknownName, "unknown optimizer 'adm'; did you mean 'adam'"),
    (lambda: program().fit(row for row in [(X[0], Y[0])]), zt.errors.DataError,
     r"an iterator gives batches; batch its rows first, as torch.utils.data.DataLoader"),
    (lambda: zt.Sequential(layer=[]), UnknownName, "did you mean 'layers'"),
])
def test_messages(call: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize(("look", "message"), [
    (lambda: zt.datasets, r"has no attribute 'datasets'; here it is zt\.data\.load\("),
    (lambda: zt.Sequental, r"did you mean 'Sequential'\?$"),
    (lambda: zt.zzz, "has no attribute 'zzz'$"),
    (lambda: zt.stack, r"; here it is zt\.ops\.stack$"), (lambda: zt.cat, r"; here it is zt\.ops\.cat$"),
    (lambda: zt.float32, "; here it is the string 'float32'$"), (lambda: zt.checkpoint, "'checkpoint'$"),
    (lambda: zt.masked_fill, r"; use ops\.where"), (lambda: zt.linspce, "; did you mean 'linspace'"),
    (lambda: zt.tensor(1.0).add_, "a tensor never changes"),
    (lambda: zt.callbacks.History, r"here it is the result of fit"),
    (lambda: zt.callbacks.EarlyStoping, "did you mean 'EarlyStopping'"),
])
def test_names_of_others(look: Callable[[], Any], message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        look()


def test_names_of_files_may_be_paths(tmp_path: Path) -> None:
    made = model()
    made.save_weights(tmp_path / "w.safetensors")
    made.load_weights(str(tmp_path / "w.safetensors"))
    assert re.match(r"\(self, path: '[^']+'", str(inspect.signature(zt.Model.load_weights)))
