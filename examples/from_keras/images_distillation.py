"""A small network learns from a larger one: a model that computes a loss of its own."""

import numpy as np
import ztorch as keras
from ztorch import layers
from ztorch import ops

keras.utils.set_random_seed(3)


def make_glyphs(count, seed):
    """Noisy pictures of one of ten random glyphs."""
    glyphs = np.random.default_rng(0).random((10, 12, 12))
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    pictures = glyphs[labels] + rng.normal(0, 0.3, (count, 12, 12))
    return pictures.astype("float32")[..., None], labels


def make_network(filters, name):
    return keras.Sequential(
        [
            keras.Input(shape=(12, 12, 1)),
            layers.Conv2D(filters, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.MaxPooling2D(pool_size=2, strides=1, padding="same"),
            layers.Flatten(),
            layers.Dense(10),
        ],
        name=name,
    )


class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.teacher = teacher
        self.student = student

    def compile(
        self, optimizer, metrics, student_loss_fn, distillation_loss_fn, alpha=0.1, temperature=3
    ):
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn = student_loss_fn
        self.distillation_loss_fn = distillation_loss_fn
        self.alpha = alpha
        self.temperature = temperature

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, allow_empty=False):
        teacher_pred = self.teacher(x, training=False)
        student_loss = self.student_loss_fn(y, y_pred)
        distillation_loss = self.distillation_loss_fn(
            ops.softmax(teacher_pred / self.temperature, axis=1),
            ops.softmax(y_pred / self.temperature, axis=1),
        ) * (self.temperature**2)
        return self.alpha * student_loss + (1 - self.alpha) * distillation_loss

    def call(self, x):
        return self.student(x)


x_train, y_train = make_glyphs(800, seed=1)
x_test, y_test = make_glyphs(400, seed=2)

teacher = make_network(16, "teacher")
teacher.compile(
    optimizer=keras.optimizers.Adam(0.003),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[keras.metrics.SparseCategoricalAccuracy()],
)
teacher.fit(x_train, y_train, epochs=4, verbose=2)
teacher.trainable = False

distiller = Distiller(student=make_network(4, "student"), teacher=teacher)
distiller.compile(
    optimizer=keras.optimizers.Adam(0.003),
    metrics=[keras.metrics.SparseCategoricalAccuracy()],
    student_loss_fn=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    distillation_loss_fn=keras.losses.KLDivergence(),
    alpha=0.1,
    temperature=10,
)
distiller.fit(x_train, y_train, epochs=4, verbose=2)

student = keras.models.clone_model(distiller.student)
student.set_weights(distiller.student.get_weights())
print("Student accuracy:", (student.predict(x_test, verbose=0).argmax(axis=1) == y_test).mean())
