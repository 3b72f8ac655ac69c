"""A small causal transformer learns verse, letter by letter, and then writes some.

Native code generates the letters; caches hold the keys and values of earlier ones.
"""

import ztorch as zt
from ztorch import layers as L
from ztorch.data import verse

(x, y), (x_test, y_test) = zt.data.load("verse")  # rows of 32 letters, and the letters that follow
letters, length = len(verse.ALPHABET), verse.LENGTH

model = zt.Sequential([
    L.Input((length,), dtype="int32"),
    L.Embedding(letters, 32),
    L.PositionEmbedding(),
    L.TransformerDecoder(intermediate_dim=96, num_heads=4, activation="gelu",
                         normalize_first=True),
    L.LayerNormalization(),
    L.Dense(letters, activation="softmax"),
], name="poet", seed=1)

program = model.compile("cpu", batch_size=32, optimizer=zt.optimizers.Adam(5e-3),
                        loss="sparse_categorical_crossentropy", metrics=["accuracy"], decode=True)
history = program.fit(x, y, epochs=5, verbose=0)
for epoch, loss in enumerate(history.history["loss"], start=1):
    print(f"epoch {epoch}: loss {loss:.3f}")

accuracy = program.evaluate(x_test, y_test, return_dict=True, verbose=0)["accuracy"]
print(f"next letter guessed right in verse it has not read: {accuracy:.3f}")

beginning = "shall i compare thee"
written = program.generate(verse.encode(beginning), 120, temperature=0.5, seed=3)
print(beginning + verse.decode(written))
