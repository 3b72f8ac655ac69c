"""ztorch generate: its output and its error messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import ztorch as zt
from models.tiny_gpt import write
from ztorch.cli import main
from ztorch.data.verse import decode, encode

MODEL = """
from ztorch import Sequential, layers as L

def build(words=36):
    return Sequential([L.Input((6,), dtype="int32"), L.Embedding(words, 8), L.PositionEmbedding(),
                       L.TransformerDecoder(8, 2), L.Dense(words)], name="own", seed=2)

few = build(3)
"""


def run(*words: str | Path | int | float) -> Result:
    return CliRunner().invoke(main, ["generate", *map(str, words)])


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file, an artifact made from it that can generate, one that cannot, and weights."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "net.py").write_text(MODEL)
    scope: dict = {}
    exec(MODEL, scope)
    model = scope["build"]()
    model.save_weights(folder / "w.safetensors")
    model.compile("cpu", batch_size=1, decode=True).save(folder / "net.zt")
    model.compile("cpu", batch_size=1).save(folder / "silent.zt")
    scope["few"].save_weights(folder / "few.safetensors")
    return folder


def test_it_prints_the_generated_text(own: Path) -> None:
    program = zt.load(own / "net.zt")
    letters = list(program.generate(encode("To be"), 20, temperature=0.8, top_k=9, seed=4))
    output = run(own / "net.zt", "To be", "--length", 20, "--temperature", 0.8, "--top-k", 9,
                 "--seed", 4)
    assert output.exit_code == 0 and output.stdout == f"To be{decode(np.array(letters))}\n"
    assert write(program, "To be", 20, 0.8, 9, 4) == output.stdout[:-1]
    end = decode(program.generate(encode("To be"), 9, temperature=0.8, seed=4))[-1]
    stopped = run(own / "net.zt", "To be", "--temperature", 0.8, "--seed", 4, "--stop", end,
                  "--top-p", 1.0, "--repetition-penalty", 1.0)
    want = decode(program.generate(encode("To be"), 200, temperature=0.8, seed=4, stop=encode(end)))
    assert stopped.stdout == f"To be{want}\n" and want.index(end) == len(want) - 1 <= 8
    fewer = run(own / "net.zt", "To be", "--length", 20, "--top-p", 0.5, "--repetition-penalty", 1.3)
    want = decode(program.generate(encode("To be"), 20, temperature=0.5, top_p=0.5,
                                   repetition_penalty=1.3))
    assert fewer.stdout == f"To be{want}\n"
    compiled = run(f"{own / 'net.py'}:build", "To be", "--length", 20, "--temperature", 0.8,
                   "--top-k", 9, "--seed", 4, "--weights", own / "w.safetensors")
    assert compiled.stdout == output.stdout


def test_beams(own: Path) -> None:
    output = run(f"{own / 'net.py'}:build", "To be", "--length", 9, "--beams", 3, "--weights",
                 own / "w.safetensors")
    scope: dict = {}
    exec(MODEL, scope)
    program = scope["build"]().compile("cpu", batch_size=1, decode=3)
    assert output.stdout == f"To be{decode(program.generate(encode('To be'), 9, beams=3))}\n"


def test_a_custom_alphabet(own: Path) -> None:
    output = run(f"{own / 'net.py'}:few", "ab", "--alphabet", "abc", "--weights",
                 own / "few.safetensors", "--length", 30)
    assert output.exit_code == 0 and len(output.stdout) == 33 and set(output.stdout) <= set("abc\n")


ERRORS = [
    (["net.zt", "é"], "the model does not know 'é'"),
    (["silent.zt", "a"], "compile a causal model with decode=True"),
    (["net.zt", "a", "--alphabet", "abc"], "36 different numbers, and the alphabet has 3 letters"),
    (["net.zt", "a", "--weights", "w.safetensors"], "has weights"),
    (["net.zt", ""], "one or more integers"),
    (["net.zt", "a", "--beams", "2"], "generates 1 at once; compile it with decode=2"),
    (["net.zt", "a", "--beams", "2", "--temperature", "0.5"], "omit temperature, or beams"),
    (["net.zt", "a", "--stop", "é"], "the model does not know 'é'"),
    (["net.py:build", "a"], "has learned nothing yet"),
    (["none.zt", "a"], "cannot read none.zt"),
]


def test_errors(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own)
    for words, message in ERRORS:
        output = run(*words)
        assert output.exit_code == 1 and message in output.stderr and output.stderr.count("\n") == 1


def test_data_of_the_small_variant_do_not_train_the_large_one() -> None:
    output = CliRunner().invoke(main, ["train", "bert_base"])
    assert output.exit_code == 1 and "or train bert_base:small, which trains on gaps" in output.stderr
