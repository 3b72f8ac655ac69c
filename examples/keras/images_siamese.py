"""Two towers that share a network learn whether two pictures show the same glyph."""

import numpy as np
import keras
from keras import layers
from keras import ops

keras.utils.set_random_seed(3)


def make_pairs(count, seed):
    """Noisy pictures of two of ten random glyphs, and 1 where these differ."""
    glyphs = np.random.default_rng(0).random((10, 12, 12))
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 10, count)
    differ = rng.integers(0, 2, count)
    second = (first + differ * rng.integers(1, 10, count)) % 10
    one, two = (glyphs[k] + rng.normal(0, 0.1, (count, 12, 12)) for k in (first, second))
    pairs = [x.astype("float32")[..., None] for x in (one, two)]
    return pairs, differ.astype("float32")


def euclidean_distance(vectors):
    x, y = vectors
    sum_square = ops.sum(ops.square(x - y), axis=1, keepdims=True)
    return ops.sqrt(ops.maximum(sum_square, keras.backend.epsilon()))


def contrastive_loss(y_true, y_pred):
    square_pred = ops.square(y_pred)
    margin_square = ops.square(ops.maximum(1 - y_pred, 0))
    return ops.mean((1 - y_true) * square_pred + y_true * margin_square)


inputs = keras.Input((12, 12, 1))
x = layers.Conv2D(4, 3, activation="tanh")(inputs)
x = layers.AveragePooling2D(pool_size=2)(x)
x = layers.Flatten()(x)
x = layers.Dense(10, activation="tanh")(x)
embedding_network = keras.Model(inputs, x)

input_1 = keras.Input((12, 12, 1))
input_2 = keras.Input((12, 12, 1))
merge_layer = layers.Lambda(euclidean_distance, output_shape=(1,))(
    [embedding_network(input_1), embedding_network(input_2)]
)
normal_layer = layers.BatchNormalization()(merge_layer)
output_layer = layers.Dense(1, activation="sigmoid")(normal_layer)
siamese = keras.Model(inputs=[input_1, input_2], outputs=output_layer)
siamese.compile(
    loss=contrastive_loss, optimizer=keras.optimizers.RMSprop(0.003), metrics=["accuracy"]
)

x_train, y_train = make_pairs(800, seed=1)
x_test, y_test = make_pairs(400, seed=2)
siamese.fit(x_train, y_train, batch_size=16, epochs=8, verbose=0)
print("Pairs accuracy:", siamese.evaluate(x_test, y_test, verbose=0)[1])
