"""Models with a train_step, test_step or predict_step of their own."""

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L
from ztorch import ops
from ztorch.errors import ConfigError

rng = np.random.default_rng(5)


def _net(model, **options):
    x = L.Input((4,))
    h = L.BatchNormalization()(L.Dense(6, activation="tanh", kernel_regularizer="l2")(x))
    return model(x, L.Dense(2, activation="softmax")(L.Dropout(0.3)(h)), **options)


class Same(zt.Model):
    """Does the same as the default."""

    def train_step(self, data):
        return super().train_step(data)

    def test_step(self, data):
        return super().test_step(data)


class ByHand(zt.Model):
    """Does it with all parts in sight."""

    def train_step(self, data):
        x, y, _ = data
        y_pred = self(x, training=True)
        loss = self.compute_loss(y=y, y_pred=y_pred)
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(self.gradients(loss, weights), weights, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}


def test_a_copy_of_the_default_step_gives_equal_results():
    x, y = rng.normal(size=(40, 4)), rng.integers(0, 2, 40)
    weights = np.linspace(0.5, 2, 40)
    runs = []
    for model in (_net(zt.Model), _net(Same), _net(ByHand)):
        model.compile("cpu", optimizer=zt.optimizers.Adam(0.05, clipnorm=1.0), batch_size=8,
                      loss="sparse_categorical_crossentropy",
                      metrics=["accuracy", zt.metrics.MeanIoU(2, sparse_y_pred=False)])
        history = model.fit(x, y, epochs=3, sample_weight=weights, verbose=0,
                            validation_data=(x[:16], y[:16]))
        runs.append((history.history, model.get_weights(), model.evaluate(x, y, verbose=0)))
    assert len(runs[0][0]) == 6
    for history, values, scores in runs[1:]:
        assert set(history) == set(runs[0][0])
        for name, curve in history.items():
            np.testing.assert_allclose(curve, runs[0][0][name], rtol=1e-5)
        for mine, other in zip(values, runs[0][1], strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(scores, runs[0][2], rtol=1e-5)


def _consistent(model_class, gradients):
    """A loss over two forward passes: predictions for noisy rows must be those for clean ones."""

    class Consistent(model_class):
        def train_step(self, data):
            (x, noisy), y, _ = zt.utils.unpack_x_y_sample_weight(data)
            if gradients is None:
                self.zero_grad()
            clean = self([x, x], training=True)
            moved = self([noisy, noisy], training=True)
            loss = self.compute_loss(y=y, y_pred=clean) + 0.5 * ((clean - moved) ** 2).mean()
            weights = self.trainable_weights
            if gradients is None:
                loss.backward()
                slopes = [w.value.grad for w in weights]
                import torch

                with torch.no_grad():
                    self.optimizer.apply(slopes, weights)
            else:
                self.optimizer.apply(self.gradients(loss, weights), weights)
            return {"loss": loss, "gap": abs(clean - moved).mean()}

    return Consistent


def test_a_consistency_loss_over_two_passes_trains_as_in_keras():
    keras = references.keras()

    def built(layers, model):
        x, other = layers.Input((3,), name="x"), layers.Input((3,), name="noisy")
        y = layers.Dense(2)(layers.Dense(5, activation="tanh")(layers.Add()([x, other])))
        return model([x, other], y)

    theirs = built(keras.layers, _consistent(keras.Model, None))
    ours = built(L, _consistent(zt.Model, True))
    ours.set_weights(theirs.get_weights())
    theirs.compile(keras.optimizers.Adam(0.02), "mse")
    ours.compile("cpu", optimizer=zt.optimizers.Adam(0.02), loss="mse", batch_size=8)
    x = rng.normal(size=(20, 3)).astype("float32")
    noisy, y = x + 0.1, rng.normal(size=(20, 2)).astype("float32")
    history = ours.fit([x, noisy], y, epochs=2, shuffle=False, verbose=0).history
    gaps = []
    for _ in range(2):
        for k in range(0, 20, 8):  # 8, 8 and 4 rows
            logs = theirs.train_on_batch([x[k:k + 8], noisy[k:k + 8]], y[k:k + 8],
                                         return_dict=True)
            gaps.append(float(logs["gap"]))
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, atol=2e-6)
    by_rows = np.average(np.reshape(gaps, (2, 3)), axis=1, weights=[8, 8, 4])
    np.testing.assert_allclose(history["gap"], by_rows, rtol=1e-4)


class Gan(zt.Model):
    """Two networks with an optimizer each. The second step sees the changes of the first one."""

    def __init__(self):
        super().__init__()
        self.critic = zt.Sequential([L.Input((2,)), L.Dense(4, activation="tanh"), L.Dense(1)])
        self.maker = zt.Sequential([L.Input((3,)), L.Dense(2)])
        self.critic_loss = zt.metrics.Mean(name="critic_loss")

    def call(self, x, training=False):
        real, noise = x["real"], x["noise"]
        return self.critic(real) - self.critic(self.maker(noise))

    def compile(self, device, critic_optimizer, maker_optimizer, **options):
        super().compile(device, **options)
        self.critic_optimizer, self.maker_optimizer = critic_optimizer, maker_optimizer

    def train_step(self, data):
        real, noise = data["real"], data["noise"]
        critic, maker = self.critic.trainable_weights, self.maker.trainable_weights
        loss = ops.mean(ops.softplus(-self.critic(real))) + ops.mean(
            ops.softplus(self.critic(self.maker(noise))))
        self.critic_optimizer.apply(self.gradients(loss, critic), critic)
        self.critic_loss.update_state(loss)
        made = ops.mean(ops.softplus(-self.critic(self.maker(noise))))
        self.maker_optimizer.apply(self.gradients(made, maker), maker)
        return {"critic_loss": self.critic_loss.result(), "maker_loss": made}


def test_two_networks_with_an_optimizer_each_against_a_loop_by_hand(tmp_path):
    gan = Gan()
    gan.compile("cpu", zt.optimizers.Adam(0.01), zt.optimizers.SGD(0.1, momentum=0.5),
                batch_size=6)
    real = rng.normal(size=(16, 2)).astype("float32")
    noise = rng.normal(size=(16, 3)).astype("float32")
    gan.build({"real": (None, 2), "noise": (None, 3)})
    critic = [zt.tensor(w) for w in gan.critic.get_weights()]
    maker = [zt.tensor(w) for w in gan.maker.get_weights()]
    history = gan.fit({"real": real, "noise": noise}, epochs=2, shuffle=False, verbose=0).history

    def judged(weights, x):
        k, b, k2, b2 = weights
        return ops.tanh(x @ k + b) @ k2 + b2

    def critic_loss(weights, made, x):
        return ops.softplus(-judged(weights, x)).mean() + ops.softplus(
            judged(weights, made)).mean()

    def maker_loss(weights, judge, z):
        return ops.softplus(-judged(judge, z @ weights[0] + weights[1])).mean()

    adam, sgd = zt.optimizers.Adam(0.01), zt.optimizers.SGD(0.1, momentum=0.5)
    losses = []
    for _ in range(2):
        for k in range(0, 16, 6):
            x, z = zt.tensor(real[k:k + 6]), zt.tensor(noise[k:k + 6])
            first, slopes = zt.value_and_grad(critic_loss)(critic, z @ maker[0] + maker[1], x)
            critic = adam.update(critic, slopes)
            second, slopes = zt.value_and_grad(maker_loss)(maker, critic, z)
            maker = sgd.update(maker, slopes)
            losses.append((first.item(), second.item()))
    for mine, other in zip(gan.critic.get_weights() + gan.maker.get_weights(), critic + maker,
                           strict=True):
        np.testing.assert_allclose(mine, other.numpy(), atol=2e-6)
    critic_losses, maker_losses = np.moveaxis(np.reshape(losses, (2, 3, 2)), 2, 0)
    np.testing.assert_allclose(history["critic_loss"], critic_losses.mean(1), rtol=1e-5)
    by_rows = np.average(maker_losses, axis=1, weights=[6, 6, 4])
    np.testing.assert_allclose(history["maker_loss"], by_rows, rtol=1e-5)
    gan.save(tmp_path / "gan.zt")
    loaded = zt.load(tmp_path / "gan.zt")
    data = {"real": real[:6], "noise": noise[:6]}
    assert loaded.fit(data, shuffle=False, verbose=0).history == gan.fit(
        data, shuffle=False, verbose=0).history
    with pytest.raises(ConfigError, match="several optimizers"):
        _ = gan.learning_rate
    with pytest.raises(ConfigError, match="cannot evaluate"):
        gan.evaluate({"real": real, "noise": noise}, verbose=0)


def test_a_class_without_call_cannot_predict():
    """examples/from_keras/images_gan.py trains one."""
    class StepsAlone(zt.Model):
        def __init__(self):
            super().__init__()
            self.maker = zt.Sequential([L.Input((3,)), L.Dense(2)])

        def train_step(self, data):
            loss = ops.mean(self.maker(data) ** 2)
            self.optimizer.apply(self.gradients(loss), self.trainable_weights)
            return {"loss": loss}

    model = StepsAlone()
    model.compile("cpu", optimizer="sgd", batch_size=4)
    x = np.ones((8, 3))
    first = model.fit(x, epochs=2, verbose=0).history["loss"]
    assert first[1] < first[0]
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(model.maker.predict(x), x @ kernel + bias, rtol=1e-5)
    for verb in (lambda: model.predict(x), lambda: model.save("m.zt"), lambda: model(x)):
        with pytest.raises(ConfigError, match=r"StepsAlone has no call\(self, x, training=False\)"):
            verb()


class Weighed(zt.Model):
    """Weighs its loss itself, and reports numbers that are the same in each step."""

    def train_step(self, data):
        x, y, weights = data if len(data) == 3 else (*data, None)
        loss = zt.losses.MeanSquaredError()(y, self(x, training=True), sample_weight=weights)
        self.optimizer.apply(self.gradients(loss))
        return {"loss": loss, "parts": len(data), "rate": self.optimizer.learning_rate,
                "half": ops.convert_to_tensor(0.5)}


def test_the_data_of_a_step_include_the_weights_of_rows():
    x, y = rng.normal(size=(12, 3)), rng.normal(size=(12, 1))
    weights = np.linspace(0.5, 2, 12)
    inputs = L.Input((3,))
    model = Weighed(inputs, L.Dense(1, kernel_initializer="ones", use_bias=False)(inputs))
    model.compile("cpu", optimizer=zt.optimizers.SGD(0.1))
    kernel, curve = np.ones((3, 1)), []
    for w in (np.ones(12), weights):
        error = x @ kernel - y
        curve.append(np.mean(w[:, None] * error ** 2))
        kernel -= 0.1 * 2 / 12 * x.T @ (w[:, None] * error)
    first = model.fit(x, y, verbose=0).history
    second = model.fit(x, y, sample_weight=weights, verbose=0).history
    np.testing.assert_allclose([*first["loss"], *second["loss"]], curve, rtol=1e-5)
    np.testing.assert_allclose(model.get_weights()[0], kernel, rtol=1e-5)
    assert (first["parts"], second["parts"]) == ([2.0], [3.0])
    np.testing.assert_allclose([first["rate"], first["half"]], [[0.1], [0.5]])
    batches = [(x[:6], y[:6], weights[:6]), (x[6:], y[6:], weights[6:])]
    assert model.fit(iter(batches), verbose=0).history["parts"] == [3.0]


def test_a_step_that_uses_the_loss_without_targets():
    class Restored(zt.Model):
        def train_step(self, data):
            loss = ops.mean(abs(self(data, training=True) - data))
            self.optimizer.apply(self.gradients(loss))
            return {"loss": loss}

    x = rng.normal(size=(6, 3))
    inputs = L.Input((3,))
    model = Restored(inputs, L.Dense(3, kernel_initializer="zeros")(inputs))
    model.compile("cpu", optimizer="sgd", loss="mae")
    np.testing.assert_allclose(model.fit(x, verbose=0).history["loss"], [np.abs(x).mean()],
                               rtol=1e-5)


@pytest.mark.parametrize("data", [[rng.normal(size=(6, 3))] * 2, iter([(np.ones((6, 3)),)])])
def test_x_alone_in_a_tuple_or_list_reaches_a_step_in_a_tuple(data):
    class Alone(zt.Model):
        def call(self, x):
            return x[0] - x[1] if isinstance(x, (list, tuple)) else x

        def test_step(self, data):
            assert isinstance(data, tuple) and len(data) == 1
            return {"loss": ops.mean(self(data[0]))}

    model = Alone()
    model.compile()
    assert model.evaluate(data, verbose=0) == (0.0 if isinstance(data, list) else 1.0)
