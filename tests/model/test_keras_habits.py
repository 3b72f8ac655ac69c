"""Everyday Keras code, from declaring a model to fitting it."""

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch import ops
from ztorch.errors import ConfigError, WeightsError

rng = np.random.default_rng(7)


def test_a_sequential_without_an_input_is_compiled_by_its_data():
    model = zt.Sequential()
    model.add(L.Embedding(10, 4))
    model.add(L.Flatten())
    model.add(L.Dense(1))
    assert model.compile("cpu", optimizer="sgd", loss="mse", weighted_metrics=["mae"]) is model
    x = rng.integers(0, 10, (16, 5))
    history = model.fit(x, np.ones(16), verbose=0).history
    assert sorted(history) == ["loss", "mae"]
    assert model.input_shape == (None, 5) and model.inputs[0].dtype.long == "int32"
    twin = zt.Sequential([L.Input((5,), "int32"), *zt.Sequential.from_config(
        model.get_config()).layers])
    twin.set_weights(model.get_weights())
    np.testing.assert_array_equal(twin.predict(x), model.predict(x))
    shaped = zt.Sequential([L.Dense(3)])
    shaped.build((None, 4))
    assert shaped.input_shape == (None, 4)


class Counter(L.Layer):
    """Sums its inputs."""

    def __init__(self):
        super().__init__()
        self.total = self.add_weight(shape=(2,), initializer="zeros", trainable=False)

    def call(self, inputs):
        x, factor = inputs
        self.total.assign_add(ops.sum(x, axis=0))
        return self.total * factor


def test_layers_assign_weights_and_accept_lists():
    counter, x = Counter(), zt.ones((3, 2))
    assert counter([x, 2.0 * zt.ones((3, 2))]).tolist() == [[6.0, 6.0]] * 3
    assert counter([x, zt.ones((3, 2))]).tolist() == [[6.0, 6.0]] * 3
    assert counter.total.numpy().tolist() == [6.0, 6.0]
    counter.total.assign_sub(np.ones(2))
    assert counter.total.value.tolist() == [5.0, 5.0]
    with pytest.raises(WeightsError, match="shape"):
        counter.total.assign(np.ones(3))

    class CountingNet(zt.Model):
        def __init__(self):
            super().__init__()
            self.dense, self.counter = L.Dense(2, use_bias=False), Counter()

        def call(self, x):
            return self.dense(x) + 0.0 * self.counter([x, x])

    net, rows = CountingNet(), rng.normal(size=(12, 2)).astype("float32")
    net.compile("cpu", optimizer="sgd", loss="mse", batch_size=4)
    net.fit(rows, rows, epochs=2, verbose=0)
    np.testing.assert_allclose(net.get_weights()[1], 2 * rows.sum(0), rtol=1e-5, atol=1e-5)
    before = net.get_weights()[1]
    net.evaluate(rows, rows, verbose=0)
    np.testing.assert_array_equal(net.get_weights()[1], before)  # only training keeps it


def test_merge_layers_are_functions_too():
    a, b = L.Input((2,)), L.Input((2,))
    merged = [L.add([a, b]), L.subtract([a, b]), L.multiply([a, b]), L.average([a, b]),
              L.maximum([a, b]), L.minimum([a, b]), L.concatenate([a, b]), L.dot([a, b], axes=1)]
    model = zt.Model([a, b], L.concatenate(merged, name="all"))
    x, y = rng.normal(size=(2, 3, 2)).astype("float32")
    np.testing.assert_allclose(model.predict([x, y]), np.concatenate([
        x + y, x - y, x * y, (x + y) / 2, np.maximum(x, y), np.minimum(x, y), x, y,
        (x * y).sum(1, keepdims=True)], axis=1), atol=1e-6)


def test_callbacks_can_change_the_optimizer():
    class Halve(zt.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.losses = []

        def on_batch_end(self, batch, logs=None):
            self.losses.append(logs["loss"])

        def on_epoch_end(self, epoch, logs=None):
            self.model.optimizer.learning_rate = self.model.optimizer.learning_rate / 2

    model = zt.Sequential([L.Input((2,)), L.Dense(1)])
    model.compile("cpu", optimizer=zt.optimizers.SGD(0.5, momentum=0.5), loss="mse", batch_size=4)
    halve = Halve()
    model.fit(np.ones((12, 2)), np.ones(12), epochs=2, verbose=0, callbacks=[halve])
    optimizer = model.optimizer
    assert len(halve.losses) == 6 and optimizer.learning_rate == 0.125
    assert (optimizer.iterations, optimizer.momentum, optimizer.name) == (6, 0.5, "SGD")
    assert optimizer.get_config()["learning_rate"] == 0.125
    optimizer.learning_rate.assign(0.25)
    assert optimizer.learning_rate == optimizer.learning_rate.numpy() == 0.25
    with pytest.raises(ConfigError, match="compiled into the step"):
        optimizer.momentum = 0.9
    with pytest.raises(ConfigError, match="cannot train before it is compiled"):
        _ = zt.Sequential([L.Input((2,)), L.Dense(1)]).optimizer


def test_a_model_from_an_artifact_continues_training(tmp_path):
    x, y = rng.normal(size=(16, 3)), rng.normal(size=(16, 1))
    model = zt.Sequential([L.Input((3,)), L.Dense(1)])
    model.compile("cpu", optimizer="adam", loss="mse", metrics=["mae"], batch_size=8)
    model.fit(x, y, epochs=2, verbose=0)
    model.save(tmp_path / "m.zt")
    again = zt.load_model(tmp_path / "m.zt")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert again.fit(x, y, verbose=0).history == model.fit(x, y, verbose=0).history
    for mine, other in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert again.optimizer.iterations == 6


def test_the_longer_name_of_a_hook_has_priority():
    class Both(zt.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.calls = []

        def on_batch_end(self, batch, logs=None):
            self.calls.append("short")

        def on_train_batch_end(self, batch, logs=None):
            self.calls.append("long")

    both = Both()
    assert both.listens("on_train_batch_end") and not both.listens("on_train_batch_begin")
    both.method("on_train_batch_end")(0)
    assert both.calls == ["long"]


def test_a_cloned_model_shares_no_layers():
    tensor = L.Input((3,))
    models = (zt.Sequential([L.Input((3,)), L.Dense(4, activation="relu"), L.Dense(1)]),
              zt.Model(tensor, L.Dense(1)(L.Dense(4, activation="relu")(tensor)) + 1.0))
    for model in models:
        first = [w.copy() for w in model.get_weights()]
        clone = zt.models.clone_model(model)
        clone.set_weights([w + 1 for w in clone.get_weights()])
        for a, b, c in zip(first, model.get_weights(), clone.get_weights(), strict=True):
            assert (a == b).all() and (c == a + 1).all()
        wider = zt.models.clone_model(model, clone_function=lambda layer: L.Dense(
            2 * layer.units, name=layer.name) if isinstance(layer, L.Dense) else type(
                layer).from_config(layer.get_config()))
        assert wider.output_shape == (None, 2) and 8 in [getattr(layer, "units", 0) for layer in wider.layers]
    assert zt.models.clone_model(models[0], input_tensors=L.Input((7,))).input_shape == (None, 7)
    with pytest.raises(ConfigError, match="is for a Sequential"):
        zt.models.clone_model(models[1], input_tensors=L.Input((7,)))


def test_settings_of_a_process():
    backend = zt.backend
    assert (backend.epsilon(), backend.floatx(), backend.image_data_format()) == (
        1e-7, "float32", "channels_last")
    backend.set_floatx("float32")
    try:
        backend.set_floatx("float64")
        assert backend.floatx() == "float64" == zt.Sequential([L.Input((2,)), L.Dense(1)]).policy
    finally:
        backend.set_floatx("float32")
    with pytest.raises(zt.errors.Unsupported, match="set_global_policy"):
        backend.set_floatx("float16")
    with pytest.raises(zt.errors.Unsupported, match="epsilon="):
        backend.set_epsilon(1e-5)


def test_windows_longer_than_the_axis_that_is_traced_first():
    ids = L.Input((None,), dtype="int32")
    words = L.Embedding(50, 4)(ids)
    far = L.Conv1D(3, 3)(L.Conv1D(8, 7, strides=3)(words))
    both = L.Concatenate()([L.GlobalMaxPooling1D()(far), L.GlobalMaxPooling1D()(words)])
    model = zt.Model(ids, both)
    x = rng.integers(0, 50, (2, 20))
    alone = zt.Model(words.call.args[0], words).predict(x)
    kernels = [w.value for layer in model.layers if isinstance(layer, L.Conv1D) for w in layer.weights]

    def convolved(x, kernel, stride):
        return np.stack([np.tensordot(x[:, k:k + len(kernel)], kernel, ((1, 2), (0, 1)))
                         for k in range(0, x.shape[1] - len(kernel) + 1, stride)], 1)

    want = convolved(convolved(alone, kernels[0], 3), kernels[2], 1).max(1)
    np.testing.assert_allclose(model.predict(x)[:, :3], want, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(model.predict(x)[:, 3:], alone.max(1))
    with pytest.raises(zt.errors.ShapeError, match="kernel is larger than the inputs"):
        L.Conv1D(8, 70)(words)


def test_an_encoder_and_a_decoder_from_a_trained_models_layers(tmp_path):
    encoder, decoder = (L.LSTM(4, return_state=True, return_sequences=n > 1) for n in (1, 2))
    a, b = L.Input((None, 3)), L.Input((None, 5))
    y, _, _ = decoder(b, initial_state=encoder(a)[1:])
    zt.Model([a, b], L.Dense(5)(y)).save(tmp_path / "m.keras")
    model = zt.models.load_model(tmp_path / "m.keras")
    states = zt.Model(model.input[0], model.layers[2].output[1:])
    assert [type(layer).__name__ for layer in model.layers] == [
        "Input", "Input", "LSTM", "LSTM", "Dense"]
    assert states.output_names == ["lstm", "lstm_1"]
    h, c = L.Input((4,)), L.Input((4,))
    y, *after = model.layers[3](model.input[1], initial_state=[h, c])
    step = zt.Model([model.input[1], h, c], [model.layers[4](y), *after])
    x, words = rng.normal(size=(2, 6, 3)), rng.normal(size=(2, 3, 5))
    want, state, got = model.predict([x, words]), states.predict(x), []
    for k in range(3):
        y, *state = step.predict([words[:, k:k + 1], *state])
        got.append(y)
    np.testing.assert_allclose(np.concatenate(got, 1), want, rtol=1e-5, atol=1e-6)


def test_modules_are_imported_as_those_of_keras():
    import ztorch.saving
    from ztorch.optimizers.schedules import ExponentialDecay
    from ztorch.random import SeedGenerator
    from ztorch.utils import to_categorical

    from ztorch import conveniences

    assert to_categorical is zt.utils.to_categorical and ztorch.saving is zt.saving
    assert ExponentialDecay is zt.schedules.ExponentialDecay and SeedGenerator(1)
    assert conveniences.__spec__.name == "ztorch.conveniences" and zt.utils is conveniences


def test_losses_of_layers_and_models_are_numbers_and_part_of_a_step():
    class Own(zt.Sequential):
        def train_step(self, data):
            x, y = data
            y_pred = self(x, training=True)
            loss = ops.mean(ops.square(y - y_pred)) + sum(self.losses)
            weights = self.trainable_weights
            self.optimizer.apply(self.gradients(loss, weights), weights)
            return {"loss": loss}

    x, y = rng.normal(size=(2, 8, 3)).astype("float32")
    histories = []
    for kind in (zt.Sequential, Own):
        model = kind([L.Input((3,)), L.Dense(4, kernel_regularizer="l2", activity_regularizer="l1"),
                      L.Dense(3, kernel_regularizer=zt.regularizers.L1(0.1))])
        kernels = model.get_weights()[::2]
        want = [0.01 * (kernels[0] ** 2).sum(), 0.1 * abs(kernels[1]).sum()]
        np.testing.assert_allclose([p.item() for p in model.losses], want, rtol=1e-6)
        np.testing.assert_allclose(model.layers[0].losses[0].item(), want[0], rtol=1e-6)
        model.compile("cpu:scalar", optimizer="sgd", loss="mse", batch_size=8)
        histories.append(model.fit(x, y, epochs=2, verbose=0).history["loss"])
        model.layers[0].trainable = False
        assert len(model.losses) == 1
    np.testing.assert_allclose(*histories, rtol=1e-6)


def test_configs_name_classes_and_summaries_show_trainable_layers(capsys):
    class Tripled(L.Layer):
        def call(self, x):
            return 3.0 * x

    tensor = L.Input((2,))
    for model in (zt.Sequential([L.Input((2,)), L.Dense(2), Tripled()]),
                  zt.Model(tensor, Tripled()(L.Dense(2)(tensor)))):
        config = model.get_config()
        known = L.Layer.known.pop("Tripled")
        with pytest.raises(zt.errors.UnknownName, match="Tripled"):
            type(model).from_config(config)
        for custom_objects in ({"Tripled": known}, [known]):
            assert type(type(model).from_config(config, custom_objects=custom_objects).layers[-1]) is Tripled
        L.Layer.known["Tripled"] = known
        next(layer for layer in model.layers if isinstance(layer, L.Dense)).trainable = False
        model.summary(show_trainable=True)
        rows = capsys.readouterr().out.splitlines()
        assert [line.split()[-1] for line in rows if "(" in line][:3] in (
            ["Trainable", "no", "yes"], ["Trainable", "yes", "no"])


def test_hooks_of_predict_see_the_model():
    seen = []
    hook = zt.callbacks.LambdaCallback()
    hook.on_predict_begin = lambda logs=None: seen.append(hook.model)
    model = zt.Sequential([L.Input((2,)), L.Dense(1)])
    program = model.compile("cpu:scalar", batch_size=2)
    model.predict(np.ones((3, 2)), callbacks=[hook])
    program.predict(np.ones((3, 2)), callbacks=[hook])
    assert seen == [model, program]
