"""Ids, positions, attention, and recurrent layers."""

from __future__ import annotations

import numpy as np

import ztorch as zt
from tests.model.wrong_models.cases import Case, begins, ids, image, row, steps
from ztorch import layers as L


def predicted(x: object) -> object:
    return ids(L.Embedding(10, 4, name="words"), L.Flatten()).compile(
        "cpu", batch_size=2, threads=1).predict(x)


def called(layer: L.Layer, *shapes: tuple[int, ...], **how: object) -> object:
    return layer(*(L.Input(shape) for shape in shapes), **how)


WORDS, MEMORY = L.Input((5, 8), name="words"), L.Input((7, 6), name="memory")


def second_call(first: tuple[L.Input, ...], second: tuple[L.Input, ...]) -> None:
    decoder = L.TransformerDecoder(16, 2, name="block")
    decoder(*first)
    decoder(*second)


CASES: dict[str, Case] = {
    "a token id out of range": lambda: predicted(np.array([[1, 2, 3, 4, 5, 6, 10]])),
    "a token id below zero": lambda: predicted(np.array([[1, 2, 3, 4, 5, -6, 0]])),
    "half a token": lambda: predicted(np.full((1, 7), 0.5)),
    "an embedding of nothing": lambda: L.Embedding(0, 4),
    "an embedding of no width": lambda: L.Embedding(10, 0),
    "too few positions": lambda: steps(L.PositionEmbedding(sequence_length=5)),
    "positions of rows": lambda: row(L.PositionEmbedding()),
    "sinusoids of images": lambda: image(L.SinusoidalPosition()),
    "wavelength of zero": lambda: L.SinusoidalPosition(max_wavelength=0),
    "rotary along the features": lambda: steps(L.RotaryEmbedding(sequence_axis=2)),
    "rotary of an odd width": lambda: zt.Sequential(
        [L.Input((4, 5)), L.RotaryEmbedding()], name="net").build(),
    "no heads": lambda: L.MultiHeadAttention(0, key_dim=4),
    "heads that do not divide the width": lambda: steps(L.MultiHeadAttention(4)),
    "heads of no width": lambda: L.MultiHeadAttention(2, key_dim=0),
    "attention of rows": lambda: row(L.MultiHeadAttention(2)),
    "attention with much dropout": lambda: L.MultiHeadAttention(2, key_dim=4, dropout=2.0),
    "a mask of the wrong shape": lambda: L.MultiHeadAttention(2, key_dim=4, name="look")(
        L.Input((5, 8)), L.Input((7, 8)), attention_mask=L.Input((7, 5), dtype="bool")),
    "keys and values of two lengths": lambda: called(
        L.MultiHeadAttention(2, key_dim=4, name="look"), (5, 8), (7, 8), (6, 8)),
    "attention called with a list": lambda: L.MultiHeadAttention(2, key_dim=4)(
        [L.Input((5, 8)), L.Input((5, 8))]),
    "attention with an unknown argument": lambda: called(
        L.MultiHeadAttention(2, key_dim=4), (5, 8), (5, 8), masks=None),
    "a block whose heads do not divide": lambda: steps(L.TransformerEncoder(16, num_heads=4)),
    "a block of no width": lambda: L.TransformerEncoder(0, num_heads=2),
    "a decoder of images": lambda: image(L.TransformerDecoder(16, num_heads=3)),
    "a decoder on a list": lambda: L.TransformerDecoder(16, 2)([WORDS, MEMORY]),
    "a decoder that finds a second sequence": lambda: second_call((WORDS,), (WORDS, MEMORY)),
    "a decoder that misses its second sequence": lambda: second_call((WORDS, MEMORY), (WORDS,)),
    "a decoder on rows": lambda: called(L.TransformerDecoder(16, 2), (5, 8), (6,)),
    "a mask of a memory without a memory": lambda: L.TransformerDecoder(16, 2)(
        WORDS, encoder_padding_mask=L.Input((7,), dtype="bool")),
    "padding of a memory of another length": lambda: L.TransformerDecoder(16, 2)(
        WORDS, MEMORY, encoder_padding_mask=L.Input((5,), dtype="bool")),
    "an encoder's mask for a decoder": lambda: L.TransformerDecoder(16, 2)(
        WORDS, MEMORY, padding_mask=L.Input((5,), dtype="bool")),
    "recurrence over integers": lambda: begins(7, 3, dtype="int32")(L.GRU(2)),
    "attention among truths": lambda: begins(7, 4, dtype="bool")(L.MultiHeadAttention(2)),
    "no memory": lambda: L.LSTM(0),
    "recurrence over rows": lambda: row(L.LSTM(4)),
    "recurrence over images": lambda: image(L.GRU(4)),
    "recurrence after recurrence": lambda: steps(L.LSTM(4, name="first"),
                                                 L.LSTM(4, name="second")),
    "recurrent dropout below zero": lambda: L.GRU(4, recurrent_dropout=-1),
    "an unknown gate": lambda: L.LSTM(4, recurrent_activation="sigmod"),
    "a recurrence used at another width": lambda: [
        zt.Sequential([L.Input((3, n)), shared]).build()
        for shared in [L.SimpleRNN(2, name="shared")] for n in (4, 5)],
    "states of another size": lambda: L.LSTM(4)(
        L.Input((5, 3)), initial_state=[L.Input((3,)), L.Input((4,))]),
    "one state of two": lambda: L.LSTM(4)(L.Input((5, 3)), initial_state=[L.Input((4,))]),
    "a mask of another length": lambda: L.GRU(4)(L.Input((5, 3)), mask=L.Input((7,), dtype="bool")),
    "a mask where none is used": lambda: L.Flatten()(L.Input((5, 3)), mask=L.Input((5,), dtype="bool")),
    "a layer in place of a cell": lambda: L.RNN(L.LSTM(4)),
    "a cell without steps": lambda: row(L.LSTMCell(4)),
    "a row of steps with states": lambda: steps(L.LSTM(4, return_state=True)),
    "masks of rows": lambda: row(L.Masking()),
    "both ways of a dense layer": lambda: L.Bidirectional(L.Dense(3)),
    "unknown merge of both ways": lambda: L.Bidirectional(L.LSTM(3), merge_mode="max"),
    "both ways in one direction": lambda: L.Bidirectional(
        L.LSTM(3), backward_layer=L.LSTM(3), name="both"),
    "one way with steps and one without": lambda: L.Bidirectional(
        L.LSTM(3), backward_layer=L.LSTM(3, go_backwards=True, return_sequences=True), name="both"),
    "steps of rows": lambda: row(L.TimeDistributed(L.Dense(3))),
    "steps of a class": lambda: L.TimeDistributed(L.Dense),
}
