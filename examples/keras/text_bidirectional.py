"""A bidirectional LSTM reads short reviews and says whether they are kind."""

import numpy as np
import keras
from keras import layers

keras.utils.set_random_seed(2)
max_features = 60  # Only consider the most frequent words
maxlen = 12  # Words of each review that are read

GOOD = "great lovely wonderful superb charming brilliant".split()
BAD = "dull awful boring terrible weak clumsy".split()
PLAIN = "the film was plot acting music story a very and with its end quite rather".split()


def make_reviews(count, seed):
    """Reviews of one good or bad word, which "not" turns around."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        words = list(rng.choice(PLAIN, size=rng.integers(4, maxlen - 1)))
        kind, turned = rng.integers(2), rng.random() < 0.3
        at = rng.integers(len(words))
        words[at:at] = (["not"] if turned else []) + [rng.choice(GOOD if kind else BAD)]
        texts.append(" ".join(words))
        labels.append(kind != turned)
    return texts, np.array(labels, "float32")


train_texts, y_train = make_reviews(1500, 0)
val_texts, y_val = make_reviews(400, 1)
words = sorted({word for text in train_texts for word in text.split()})
ids = {word: k + 1 for k, word in enumerate(words)}  # 0 is padding


def vectorize(texts):
    rows = [[ids[word] for word in text.split()] for text in texts]
    return keras.utils.pad_sequences(rows, maxlen=maxlen)


x_train, x_val = vectorize(train_texts), vectorize(val_texts)
print(len(x_train), "Training sequences")
print(len(x_val), "Validation sequences")

# Input for variable-length sequences of integers
inputs = keras.Input(shape=(None,), dtype="int32")
# Embed each integer in a 16-dimensional vector
x = layers.Embedding(max_features, 16, mask_zero=True)(inputs)
# Add a bidirectional LSTM
x = layers.Bidirectional(layers.LSTM(16))(x)
# Add a classifier
outputs = layers.Dense(1, activation="sigmoid")(x)
model = keras.Model(inputs, outputs)
model.summary()

model.compile(
    optimizer=keras.optimizers.Adam(0.01), loss="binary_crossentropy", metrics=["accuracy"]
)
history = model.fit(
    x_train, y_train, batch_size=50, epochs=4, validation_data=(x_val, y_val), verbose=2
)
print("Best validation accuracy:", max(history.history["val_accuracy"]))
