"""Captions of features: a decoder that attends to both, with a loss over real words alone."""

import numpy as np
import ztorch as keras
from ztorch import layers
from ztorch import ops

keras.utils.set_random_seed(0)
words, length, dim = 12, 7, 16


def make_captions(count, seed):
    """Features that name a word for each place, and captions that end in padding (0)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, words, size=(count, length))
    named = np.eye(words)[labels] + 0.2 * rng.normal(size=(count, length, words))
    features = np.concatenate([named, np.tile(np.eye(length), (count, 1, 1))], axis=-1)
    captions = np.concatenate([np.ones((count, 1), int), labels], axis=1)
    ends = rng.integers(4, length + 1, size=count)
    captions[np.arange(length + 1) > ends[:, None]] = 0
    return features.astype("float32"), captions.astype("int32")


class Positions(layers.Layer):
    """Words with their places; padding is masked."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.word = layers.Embedding(words, dim)
        self.place = layers.Embedding(length, dim)

    def build(self, input_shape):
        self.word.build(input_shape)
        self.place.build((length,))
        self.built = True

    def call(self, x):
        return self.word(x) + self.place(ops.arange(length))

    def compute_mask(self, inputs, mask=None):
        return ops.not_equal(inputs, 0)


class Decoder(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.own = layers.MultiHeadAttention(2, dim)
        self.seen = layers.MultiHeadAttention(2, dim)
        self.norm1 = layers.LayerNormalization()
        self.norm2 = layers.LayerNormalization()
        self.out = layers.Dense(words)

    def call(self, x, features):
        causal = ops.cast(ops.tril(ops.ones((length, length))), "int32")[None]
        x = self.norm1(x + self.own(x, x, attention_mask=causal))
        return self.out(self.norm2(x + self.seen(x, features)))


def masked_loss(y_true, y_pred):
    loss = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
    mask = ops.cast(y_true != 0, "float32")
    return ops.sum(loss * mask, axis=-1) / ops.sum(mask, axis=-1)


def word_accuracy(y_true, y_pred):
    y_true = ops.cast(y_true, "int32")
    mask = ops.cast(y_true != 0, "float32")
    right = ops.cast(y_true == ops.cast(ops.argmax(y_pred, axis=-1), "int32"), "float32")
    return ops.sum(right * mask, axis=-1) / ops.sum(mask, axis=-1)


features, captions = make_captions(1200, 0)
test_features, test_captions = make_captions(200, 1)

seen = keras.Input((length, words + length))
told = keras.Input((length,), dtype="int32")
model = keras.Model([seen, told], Decoder()(Positions()(told), layers.Dense(dim)(seen)))
model.compile(optimizer=keras.optimizers.Adam(0.01), loss=masked_loss, metrics=[word_accuracy])
model.fit([features, captions[:, :-1]], captions[:, 1:], batch_size=50, epochs=6, verbose=2)

scores = model.evaluate([test_features, test_captions[:, :-1]], test_captions[:, 1:], verbose=0)
print("Word accuracy:", scores[1])
