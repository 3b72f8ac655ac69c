"""Models with steps of their own: losses, metrics, optimizers, and steps that are wrong."""

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import layers as L
from ztorch import ops
from ztorch.errors import ConfigError, DataError

rng = np.random.default_rng(5)


class Own(zt.Model):
    """Targets that no loss describes, a teacher that follows, and steps for all verbs."""

    def __init__(self):
        super().__init__()
        self.dense, self.teacher = L.Dense(1), L.Dense(1, trainable=False)

    def call(self, x, training=False):
        return self.dense(x) + 0.0 * self.teacher(x)

    def train_step(self, data):
        x, y, *_ = data
        loss = ops.mean(abs(self(x, training=True)[:, 0] - y))
        self.optimizer.apply(self.gradients(loss), self.trainable_weights)
        self.teacher.kernel.assign(0.5 * self.teacher.kernel + 0.5 * self.dense.kernel)
        return {"loss": loss}

    def test_step(self, data):
        x, y, *_ = data
        return {"worst": ops.max(abs(self(x)[:, 0] - y))}

    def predict_step(self, data):
        return 10.0 * self(data)


def test_targets_without_a_loss_assigned_weights_and_steps_for_all_verbs():
    model = Own()
    model.compile("cpu", optimizer=zt.optimizers.SGD(0.1), batch_size=4)
    x, y = rng.normal(size=(6, 3)).astype("float32"), rng.normal(size=6).astype("float32")
    model.build((None, 3))
    kernel, bias, teacher, _ = model.get_weights()
    losses = []
    for rows in (slice(0, 4), slice(4, 6)):
        error = (x[rows] @ kernel + bias)[:, 0] - y[rows]
        losses.append(np.abs(error).mean())
        sign = np.sign(error)[:, None] / len(error)
        kernel, bias = kernel - 0.1 * x[rows].T @ sign, bias - 0.1 * sign.sum(0)
        teacher = 0.5 * teacher + 0.5 * kernel
    history = model.fit(x, y, shuffle=False, verbose=0,
                        validation_data=(x[:3], y[:3])).history
    for mine, other in zip(model.get_weights(), (kernel, bias, teacher), strict=False):
        np.testing.assert_allclose(mine, other, atol=1e-6)
    np.testing.assert_allclose(history["loss"], [np.average(losses, weights=[4, 2])], rtol=1e-5)
    predictions = (x @ kernel + bias)
    np.testing.assert_allclose(model.predict(x), 10 * predictions, rtol=1e-4)
    worst = np.abs(predictions[:3, 0] - y[:3]).max()
    np.testing.assert_allclose(history["val_worst"], [worst], rtol=1e-5)
    one = model.train_on_batch(x[:3], y[:3])
    np.testing.assert_allclose(one, np.abs(predictions[:3, 0] - y[:3]).mean(), rtol=1e-5)
    with pytest.raises(ConfigError, match="ignores the weights of rows"):
        model.fit(x, y, sample_weight=np.ones(6), verbose=0)
    with pytest.raises(DataError, match="a batch has 1 rows, and batches of this model cannot be padded"):
        model.program.fit(x[:1], y[:1], verbose=0)


def test_a_custom_compute_loss_and_gradients_of_inputs():
    class Smooth(zt.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            loss = super().compute_loss(x, y, y_pred, sample_weight)
            slope = self.gradients(ops.sum(y_pred), x)  # of each row
            return loss + ops.mean(slope * slope)

    x = L.Input((2,))
    model = Smooth(x, L.Dense(1, use_bias=False, kernel_initializer="ones")(x))
    model.compile("cpu", optimizer=zt.optimizers.SGD(0.25), loss="mse", batch_size=4)
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    assert model.fit(rows, np.ones(4), verbose=0).history["loss"] == [1.0]
    np.testing.assert_allclose(model.get_weights()[0], [[0.75], [0.75]])  # 1 - 0.25 * (0 + 1)


@pytest.mark.parametrize("optimizer", [
    zt.optimizers.SGD(0.1, momentum=0.9, nesterov=True), zt.optimizers.Adam(0.1, weight_decay=0.01),
    zt.optimizers.RMSprop(0.1, use_ema=True, ema_momentum=0.5),
    zt.optimizers.SGD(0.1, gradient_accumulation_steps=2)], ids=lambda o: type(o).__name__)
def test_applying_an_optimizer_twice_makes_two_steps(optimizer):
    class Twice(zt.Model):
        def train_step(self, data):
            x, y = data
            for _ in range(self.times):
                loss = self.compute_loss(x, y, self(x, training=True))
                self.optimizer.apply(self.gradients(loss))
            return {"loss": loss}

    x, y, learned = rng.normal(size=(8, 3)), rng.normal(size=8), []
    for times in (1, 2):
        tensor = L.Input((3,))
        model = Twice(tensor, L.Dense(1)(tensor))
        model.times = times
        model.compile("cpu:scalar", optimizer=zt.optimizers.get(
            {"class_name": type(optimizer).__name__, "config": optimizer.get_config()}), loss="mse")
        model.fit(x, y, batch_size=8, epochs=4 // times, verbose=0)
        learned.append([*model.get_weights(), model.optimizer.iterations])
    for one, two in zip(*learned, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)


def test_metrics_without_a_loss_and_compute_loss_as_keras_has_it():
    class Halved(zt.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, allow_empty=False):
            return 0.5 * zt.ops.mean(zt.losses.sparse_categorical_crossentropy(y, y_pred))

    x, y = rng.normal(size=(8, 3)).astype("f"), np.arange(8) % 2
    tensor = L.Input((3,))
    model = Halved(tensor, L.Dense(2, activation="softmax")(tensor))
    model.compile("cpu:scalar", optimizer="sgd", metrics=["accuracy", zt.metrics.SparseCategoricalAccuracy()])
    history = model.fit(x, y, batch_size=8, epochs=1, verbose=0).history
    assert list(history) == ["loss", "accuracy", "sparse_categorical_accuracy"]
    loss, *accuracies = model.evaluate(x, y, verbose=0)
    p = model.predict(x)
    assert loss == pytest.approx(-0.5 * np.log(p[range(8), y]).mean(), rel=1e-5)
    assert accuracies == [(p.argmax(1) == y).mean()] * 2


def test_metrics_of_the_model_accumulate_over_an_epoch():
    class Keeping(zt.Model):
        def __init__(self):
            super().__init__()
            self.dense = L.Dense(1, activation="sigmoid")
            self.area, self.positives = zt.metrics.AUC(), zt.metrics.Sum()

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y = data
            p = self(x, training=True)
            self.optimizer.apply(self.gradients(zt.ops.mean((p - y) ** 2)))
            self.area.update_state(y, p)
            self.positives.update_state(y)
            self.positives.update_state(zt.ops.ones_like(p), sample_weight=0.5)
            return {"auc": self.area.result(), "count": self.positives.result()}

    x = rng.normal(size=(20, 3)).astype("f")
    y = (x.sum(1, keepdims=True) > 0).astype("f")
    model = Keeping()
    model.compile("cpu:scalar", optimizer=zt.optimizers.SGD(0.0))
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0).history
    area = zt.metrics.AUC()
    area.update_state(y, model.predict(x))
    assert history["count"] == [y.sum() + 10] * 2
    assert history["auc"] == pytest.approx([float(area.result())] * 2, abs=1e-6)


@pytest.mark.parametrize("listed", [None, "more", "alone"])
def test_metrics_that_compute_loss_updates_are_scores_as_in_keras(listed):
    def results(room, layers, ops, device):
        class Codes(room.Model):
            def __init__(self):
                super().__init__()
                self.dense = layers.Dense(2, kernel_initializer="ones")
                self.kl, self.total = room.metrics.Mean(name="kl"), room.metrics.Mean(name="loss")
                self.area = room.metrics.AUC(name="area")

            def call(self, x):
                return self.dense(x)

            def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
                kl = ops.mean(ops.square(y_pred))
                self.kl.update_state(kl)
                self.kl.update_state(3.0 * kl, sample_weight=0.5)
                self.area.update_state(ops.cast(x > 0.4, "float32"), ops.sigmoid(y_pred))
                loss = kl + ops.mean(ops.abs(y_pred - x))
                self.total.update_state(loss)
                return loss

        class More(Codes):
            @property
            def metrics(self):
                return [*super().metrics, self.kl]

        class Alone(Codes):
            @property
            def metrics(self):
                return [self.kl]

        model = {None: Codes, "more": More, "alone": Alone}[listed]()
        model.compile(*device, optimizer=room.optimizers.SGD(0.1))
        x = np.arange(16, dtype="float32").reshape(8, 2) / 10
        history = model.fit(x, batch_size=4, epochs=2, verbose=0, shuffle=False).history
        return history, model.evaluate(x, batch_size=4, verbose=0, return_dict=True)

    ours = results(zt, L, ops, ("cpu:scalar",))
    keras = references.keras()
    theirs = results(keras, keras.layers, keras.ops, ())
    for mine, other in zip(ours, theirs, strict=True):
        assert set(mine) == set(other) == ({"kl"} if listed == "alone" else {"loss", "kl", "area"})
        for name in other:
            np.testing.assert_allclose(mine[name], other[name], rtol=1e-4, err_msg=name)

def test_two_updated_metrics_of_one_name_are_refused():
    class Twice(zt.Model):
        def __init__(self):
            super().__init__()
            self.dense, self.a, self.b = L.Dense(1), zt.metrics.Mean(), zt.metrics.Mean()

        def call(self, x):
            return self.dense(x)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            self.a(y_pred)
            self.b(y_pred)
            return ops.mean(y_pred)

    model = Twice()
    model.compile("cpu:scalar", optimizer="sgd")
    with pytest.raises(ConfigError, match="two scores are named 'mean'"):
        model.fit(np.ones((4, 3)), verbose=0)


def test_wrong_steps_are_named():
    def fitted(step, **options):
        class Wrong(zt.Model):
            train_step = step

        x = L.Input((3,))
        model = Wrong(x, L.Dense(1)(x), name="net")
        model.compile("cpu", **{"optimizer": "sgd", "loss": "mse", **options})
        model.fit(np.ones((4, 3)), np.ones(4), verbose=0)

    def by_two(self, data):
        x, y = data
        loss = self.compute_loss(x, y, self(x))
        slopes = self.gradients(loss)
        self.optimizer.apply(slopes)
        self.other = zt.optimizers.SGD(0.1)
        self.other.apply(slopes)
        return {"loss": loss}

    def returns(logs):
        def step(self, data):
            x, y = data
            loss = self.compute_loss(x, y, self(x))
            self.optimizer.apply(self.gradients(loss))
            return logs(loss, y)
        return step

    for step, message, options in (
            (lambda self, data: {"loss": self.compute_loss(data[0], data[1], self(data[0]))},
             "train_step updates no weights", {}),
            (by_two, "weight 'dense/kernel' is updated by two optimizers in one step", {}),
            (returns(lambda loss, y: loss), "return a dict of scalars by name", {}),
            (returns(lambda loss, y: {"y": y}), r"y=.* of shape \(32, 1\); return a scalar", {}),
            (returns(lambda loss, y: {"loss": loss}), "compiled without a loss", {"loss": None}),
            (returns(lambda loss, y: {"loss": loss}), "cannot train before", {"optimizer": None}),
            (lambda self, data: self.gradients(self(data[0])), "gradients need a loss with one number", {})):
        with pytest.raises((ConfigError, ValueError), match=message):
            fitted(step, **options)
    x = L.Input((3,))
    with pytest.raises(ConfigError, match="works in the train_step or test_step of a model"):
        zt.Model(x, L.Dense(1)(x)).compute_loss()


def test_a_predict_step_knows_real_lengths():
    class Twice(zt.Model):
        def predict_step(self, data):
            return 2.0 * self(data)

    x = zt.Input((None, 3))
    model = Twice(x, zt.layers.GlobalAveragePooling1D()(x))
    model.compile("cpu", batch_size=2)
    data = rng.normal(size=(2, 5, 3)).astype("float32")
    np.testing.assert_allclose(model.predict(data), 2 * data.mean(1), rtol=1e-5)


def test_a_scalar_loss_takes_the_rows_of_a_batch_together():
    model = zt.Sequential([zt.layers.Input((3,)), zt.layers.Dense(1)])
    model.compile("cpu", batch_size=4, optimizer="sgd", loss=lambda y_true, y_pred: (y_true - y_pred)[-1, 0] ** 2)
    x, y = rng.normal(size=(6, 3)).astype("float32"), rng.normal(size=(6, 1)).astype("float32")
    squares = (y - model.predict(x)) ** 2
    want = (4 * squares[3, 0] + 2 * squares[5, 0]) / 6
    assert model.program.metadata.whole_batches == ("evaluate", "train")
    np.testing.assert_allclose(model.evaluate(x, y, verbose=0), want, rtol=1e-5)


def test_lists_for_a_model_of_one_output_have_one_item():
    model = zt.Sequential([zt.layers.Input((3,)), zt.layers.Dense(1)])
    for loss, message in (([], "is an empty list; omit it"), (["mse", "mae"], "has length 2, but model")):
        with pytest.raises(ConfigError, match=message):
            model.compile("cpu", batch_size=4, optimizer="sgd", loss=loss)
