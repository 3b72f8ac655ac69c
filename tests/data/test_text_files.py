"""Text files: three kinds of tokens, passages and their next tokens, and files that are too short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.errors import ConfigError, DataError


def opened(tmp_path: Path, content: str | bytes, length: int = 3, name: str = "t.txt",
           **how: Any) -> zt.data.Text:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return zt.data.text(path, length, **how)


@pytest.mark.parametrize(("tokenizer", "vocab", "tokens"), [
    ("chars", (" ", "a", "b", "ä", "日"), [1, 2, 0, 3, 3, 4, 0, 1, 2]),
    ("words", ("<unknown>", "ab", "ää日"), [1, 2, 1]),
])
def test_tokens(tmp_path: Path, tokenizer: str, vocab: tuple, tokens: list[int]) -> None:
    text = opened(tmp_path, "ab ää日 ab", 2, tokenizer=tokenizer)
    assert text.vocab == vocab and text.tokens.tolist() == tokens and text.tokens.dtype == np.int32
    assert text.decode(text.tokens) == "ab ää日 ab" == text.decode(iter(text.tokens))
    assert text.encode("ab").tolist() == tokens[:2 if tokenizer == "chars" else 1]


def test_bytes(tmp_path: Path) -> None:
    text = opened(tmp_path, b"\x00\xffab\xc3\xa4", 2, tokenizer="bytes")
    assert len(text.vocab) == 256 and text.tokens.tolist() == [0, 255, 97, 98, 195, 164]
    assert text.encode("ä").tolist() == [195, 164] and text.decode([97, 195, 164]) == "aä"
    assert text.decode([195]) == "\ufffd"  # half a letter


def test_words_and_signs(tmp_path: Path) -> None:
    text = opened(tmp_path, "the cat, the dog;\nthe end.", 2, tokenizer="words", vocab_size=2)
    assert text.vocab == ("<unknown>", "the", ",")  # equally frequent words in their order
    assert text.tokens.tolist() == [1, 0, 2, 1, 0, 0, 1, 0, 0]
    assert text.decode([1, 0]) == "the <unknown>"


@pytest.mark.cheap
@pytest.mark.parametrize(("length", "stride"), [(3, None), (3, 1), (4, 2), (2, 5), (19, None)])
def test_passages_are_followed_by_what_follows(tmp_path: Path, length: int,
                                               stride: int | None) -> None:
    content = "abcdefghijklmnopqrst"
    text = opened(tmp_path, content, length, stride=stride, batch_size=3)
    x, y = text.arrays()
    step = stride or length
    starts = [k for k in range(0, 20, step) if k + length + 1 <= 20]
    assert [text.decode(row) for row in x] == [content[k:k + length] for k in starts]
    assert [text.decode(row) for row in y] == [content[k + 1:k + length + 1] for k in starts]
    assert x.dtype == y.dtype == np.int32 and len(text) == -(-len(starts) // 3)


@pytest.mark.cheap
@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_split_shares_no_token_to_predict(tmp_path: Path, stride: int) -> None:
    content = "".join(chr(0x4E00 + k) for k in range(60))
    train, rest = opened(tmp_path, content, 3, stride=stride, seed=1).split(0.3)
    one, other = (set(part.arrays()[1].reshape(-1).tolist()) for part in (train, rest))
    assert one and other and max(one) < min(other)


def test_one_vocabulary_for_two_files(tmp_path: Path) -> None:
    train = opened(tmp_path, "hello world")
    test = opened(tmp_path, "world", name="test.txt", vocab=train.vocab)
    assert train.decode(test.tokens) == "world"
    with pytest.raises(DataError, match=r"'!' \(token 2\) is not in the vocabulary"):
        opened(tmp_path, "he!lo", name="test.txt", vocab=train.vocab)
    words = opened(tmp_path, "a b a b", 2, tokenizer="words")
    assert opened(tmp_path, "b c a", 2, "test.txt", tokenizer="words",
                  vocab=words.vocab).tokens.tolist() == [2, 0, 1]


def test_lines_and_marks(tmp_path: Path) -> None:
    text = opened(tmp_path, "﻿ab\r\ncd\n")
    assert text.decode(text.tokens) == "ab\ncd\n"
    endless = opened(tmp_path, "ab" * 300_000, 100)  # one line
    assert endless.rows == 5999 and endless.vocab == ("a", "b")


def test_a_model_learns_a_text(tmp_path: Path) -> None:
    text = opened(tmp_path, "abcd" * 60, 8, seed=0, batch_size=10)
    model = zt.Sequential([L.Input((8,), dtype="int32"), L.Embedding(len(text.vocab), 8),
                           L.Dense(len(text.vocab), activation="softmax")])
    program = model.compile("cpu", batch_size=8, optimizer=zt.optimizers.Adam(0.05),
                            loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    history = program.fit(text, epochs=15, verbose=0).history
    assert history["accuracy"][-1] == 1.0
    row = program.predict(text.encode("abcdabcd")[None])[0]
    assert text.decode(row.argmax(-1)) == "bcdabcda"


@pytest.mark.cheap
@pytest.mark.parametrize(("content", "how", "message"), [
    ("", {}, "has 0 tokens; a passage of 3 .* need at least 4"),
    ("abc", {}, "has 3 tokens"),
    ("one line", {"tokenizer": "words"}, "has 2 tokens"),
    (b"ab\xff", {}, r"not text in UTF-8 \(at byte 2\)"),
])
def test_wrong_files(tmp_path: Path, content: str | bytes, how: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        opened(tmp_path, content, **how)


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        zt.data.text(tmp_path / "none.txt")
    with pytest.raises(ConfigError, match="'chars', 'bytes' or 'words'"):
        opened(tmp_path, "abcdef", tokenizer="letters")
    with pytest.raises(ConfigError, match="vocab_size"):
        opened(tmp_path, "abcdef", vocab_size=5)
    with pytest.raises(ConfigError, match="has a token twice"):
        opened(tmp_path, "abcdef", vocab="abcdefa")
    with pytest.raises(ConfigError, match="leaves one side empty"):
        opened(tmp_path, "abcdefgh").split(0.4)
    with pytest.raises(DataError, match="from 0 to 5"):
        opened(tmp_path, "abcdef").decode([6])
