"""Every layer beside Keras' layer of the same name: arguments, their order and defaults, weights,
shapes and numbers. Deliberate differences stand in a table, with the reason."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from tests import references
from tests.cases.grouping import together
from tests.layers.keras_differences import ADDED, OURS, beside_keras
from tests.layers.running import Traced
from tests.layers.twin_cases import CASES, PLAIN, Case, public
from ztorch import layers as L
from ztorch.errors import UnknownName

# Arguments of Keras that are refused by name, as wrong ones are.
NOWHERE = {
    "_regularizer": "taken by name: more_arguments", "_constraint": "taken by name",
    "lora_rank": "not offered", "lora_alpha": "not offered", "quantization_config": "not offered",
}
NOT_OFFERED = {
    "Embedding": {"weights": "set_weights does it"},
    "BatchNormalization": dict.fromkeys(
        ("renorm", "renorm_clipping", "renorm_momentum", "synchronized"), "one device, no renorm"),
    "MultiHeadAttention": {
        "attention_axes": "sequences have one axis", "sliding_window": "give attention_mask",
        "flash_attention": "how it is computed is the compiler's matter", "use_gate": "not offered"},
    "GroupQueryAttention": {
        "sliding_window": "give attention_mask", "use_gate": "not offered",
        "flash_attention": "how it is computed is the compiler's matter"},
    **{name: {"unroll": "a loop of any length is compiled once", **(
        {} if name in ("SimpleRNN", "RNN") else {"use_cudnn": "how it is computed"})}
       for name in ("SimpleRNN", "LSTM", "GRU", "RNN")},
    "ReversibleEmbedding": {"reverse_dtype": "scores have the dtype of the vectors"},
    "Bidirectional": {"weights": "set_weights does it"},
    "EinsumDense": {"gptq_unpacked_column_size": "not offered"},
    "Lambda": {"mask": "a subclass has compute_mask"},
}
COMMON = {"name", "dtype"}  # a dtype is the model's

OTHER_DEFAULTS = {("MultiHeadAttention", "key_dim"): "features / num_heads unless given"}
OTHER_WEIGHTS = {"Normalization": "Keras counts the batches that adapt has seen; adapt starts again"}


def plain(x: Any) -> Any:
    """Equal defaults in equal words: (1, 1) for two axes is 1 for each, Zeros is zeros."""
    if isinstance(x, (list, tuple)):
        inner = [plain(item) for item in x]
        return inner[0] if inner and all(item == inner[0] for item in inner) else tuple(inner)
    return x.lower().replace("_", "") if isinstance(x, str) else x


def arguments(of: Any) -> dict[str, Any]:
    """Names, in their order, and defaults."""
    return {p.name: p.default for p in inspect.signature(of).parameters.values()
            if p.kind is not p.VAR_KEYWORD and p.name not in {"self", *COMMON}}


def offered(layer: str, name: str) -> bool:
    return name not in NOT_OFFERED.get(layer, {}) and not any(
        name == what or (what[0] == "_" and name.endswith(what)) for what in NOWHERE)


@together()
@pytest.mark.parametrize("name", sorted({*public()} - {*OURS, "Input", "Identity"}))
def test_arguments_are_those_of_keras(name: str) -> None:
    theirs = arguments(getattr(references.keras().layers, name).__init__)
    ours = arguments(getattr(L, name).__init__)
    added = [n for n in ours if n not in theirs]
    rules = [n for n in theirs if n.endswith(("_regularizer", "_constraint"))]
    assert {*rules, "activity_regularizer"} == {*getattr(L, name).more_arguments()}
    assert sorted(added) == sorted(ADDED.get(name, {}))
    assert [n for n in ours if n in theirs] == [n for n in theirs if offered(name, n)]
    for n in set(ours) - set(added):
        if (name, n) in OTHER_DEFAULTS:
            assert ours[n] != theirs[n]
        else:
            assert plain(ours[n]) == plain(theirs[n]), n
    assert {*NOT_OFFERED.get(name, {})} <= {*theirs}, "Keras has no such argument"


def test_the_tables_name_layers_that_exist() -> None:
    keras = references.keras()
    assert {*NOT_OFFERED, *ADDED, *OTHER_WEIGHTS, *(n for n, _ in OTHER_DEFAULTS)} <= {*public()}
    for name in public():
        assert hasattr(keras.layers, name) == (name not in OURS), name


ARGUMENTS = [(name, wrong) for name in PLAIN if name not in OURS for wrong in (
    "lora_rank", *NOT_OFFERED.get(name, {}))]


@together()
@pytest.mark.parametrize(("name", "wrong"), ARGUMENTS)
def test_unsupported_features_are_refused_by_name(name: str, wrong: str) -> None:
    """An error rather than ignored: even for the default of Keras."""
    how = PLAIN[name][0][1]
    with pytest.raises(UnknownName, match=f"argument of {name} '{wrong}'"):
        getattr(L, name)(**how, **{wrong: None})


@together()
@pytest.mark.parametrize("case", [*filter(beside_keras, CASES)], ids=str)
def test_weights_shapes_and_numbers_are_those_of_keras(case: Case) -> None:
    keras, torch = references.keras(), references.torch()
    ours = Traced(getattr(L, case.layer)(**case.how, name="tried"), case.rows())
    theirs = getattr(keras.layers, case.layer)(**case.how, dtype="float64", name="tried")
    x = torch.tensor(ours.array)
    inputs = (x, x) if case.layer == "MultiHeadAttention" else (x,)
    assert tuple(theirs(*inputs).shape) == ours.y.shape
    cell = {"SimpleRNN": "simple_rnn", "LSTM": "lstm", "GRU": "gru"}.get(case.layer, "conv_lstm")
    actual = [(w.path.replace(f"{cell}_cell/", ""), tuple(w.shape), bool(w.trainable))
              for w in theirs.weights]
    adapts = case.layer in OTHER_WEIGHTS and bool(actual)
    assert actual[:-1 if adapts else None] == [(w.path, w.shape, w.trains)
                                               for w in ours.layer.weights]
    assert theirs.count_params() == ours.layer.count_params() + adapts
    theirs.set_weights([*ours.weights.values(), *([np.array(0)] if adapts else [])])
    if adapts:
        theirs.finalize_state()
    np.testing.assert_allclose(ours.oracle()[0], theirs(*inputs).detach().numpy(), rtol=1e-5,
                               atol=1e-6)
