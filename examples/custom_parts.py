"""A layer, a loss and a metric of your own, from the ops of `zt.ops`.

Gradients, fusion and native code follow from the ops. The model fits a curve whose noise has rare
large errors, and predicts a quantile instead of a mean.
"""

import numpy as np

import ztorch as zt
from ztorch import layers as L
from ztorch import ops


class Fourier(L.Layer):
    """Sines and cosines of the input at frequencies that are learned."""

    def __init__(self, count, **common):
        super().__init__(**common)  # name=, trainable=
        self.count = count

    def build(self, input_shape):
        self.frequency = self.add_weight("frequency", (input_shape[-1], self.count), "normal")

    def call(self, x, context):
        angle = ops.matmul(x, context.read(self.frequency)) * 4.0
        return ops.concat([ops.sin(angle), ops.cos(angle)], axis=-1)


class Quantile(zt.losses.Loss):
    """Its best prediction is the number below which a share `q` of the targets lies."""

    def __init__(self, q=0.5):
        self.q = q

    def values(self, y_true, y_pred, from_logits):
        error = y_true - y_pred
        return ops.maximum(error * self.q, error * (self.q - 1.0))


class Below(zt.metrics.Metric):
    """How many targets lie below the prediction."""

    def values(self, y_true, y_pred):
        return ops.less(y_true, y_pred)


rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, (4096, 1)).astype("float32")
y = (np.sin(5 * x) + rng.exponential(0.3, x.shape)).astype("float32")

for q in (0.1, 0.5, 0.9):
    model = zt.Sequential([L.Input((1,)), Fourier(16), L.Dense(32, activation="tanh"), L.Dense(1)])
    program = model.compile("cpu", batch_size=64, optimizer=zt.optimizers.Adam(3e-3),
                            loss=Quantile(q), metrics=[Below(name="below")])
    program.fit(x, y, epochs=15, verbose=0)
    scores = program.evaluate(x, y, return_dict=True, verbose=0)
    at_zero = program.predict(np.zeros((1, 1), "float32"))[0, 0]
    print(f"q={q}: {scores['below']:.3f} of the targets lie below; "
          f"at 0 it gives {at_zero:.2f}, exact {-0.3 * np.log(1 - q):.2f}")
