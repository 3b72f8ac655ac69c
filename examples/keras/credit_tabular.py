"""A classifier of tables: normalized numbers, categories, rare cases weighted, the best kept."""

import os
import tempfile

import numpy as np
import keras
from keras import layers

keras.utils.set_random_seed(5)
rng = np.random.default_rng(0)
count = 2400
numbers = np.stack([rng.normal(40, 12, count), rng.lognormal(10, 0.5, count)], -1).astype("float32")
jobs = rng.integers(6, size=(count, 1))
risk = (numbers[:, 0] < 35) * 1.5 + (numbers[:, 1] < 20000) * 2.0
risk += np.isin(jobs[:, 0], [1, 4]) * 1.5
targets = (risk + rng.normal(0, 0.7, count) > 4.0).astype("float32")[:, None]

num_val = count // 5
train = {"numbers": numbers[:-num_val], "job": jobs[:-num_val]}
val = {"numbers": numbers[-num_val:], "job": jobs[-num_val:]}
train_targets, val_targets = targets[:-num_val], targets[-num_val:]

counts = np.bincount(train_targets[:, 0].astype("int64"))
print(f"Number of positive samples in training data: {counts[1]}")
weight_for_0 = 1.0 / counts[0] * len(train_targets) / 2
weight_for_1 = 1.0 / counts[1] * len(train_targets) / 2

normalizer = layers.Normalization()
normalizer.adapt(train["numbers"])

numbers_input = keras.Input(shape=(2,), name="numbers")
job_input = keras.Input(shape=(1,), name="job", dtype="int32")
job = layers.Flatten()(layers.Embedding(6, 4)(job_input))
x = layers.Concatenate()([normalizer(numbers_input), job])
x = layers.Dense(32, activation="relu", kernel_regularizer=keras.regularizers.L2(1e-4))(x)
x = layers.BatchNormalization()(x)
x = layers.Dense(32, activation=keras.activations.relu)(x)
x = layers.Dropout(0.2)(x)
outputs = layers.Dense(1, activation="sigmoid")(x)
model = keras.Model({"numbers": numbers_input, "job": job_input}, outputs)

path = os.path.join(tempfile.mkdtemp(), "credit.keras")
callbacks = [
    keras.callbacks.ModelCheckpoint(path, monitor="val_auc", mode="max", save_best_only=True),
    keras.callbacks.ReduceLROnPlateau(patience=2),
    keras.callbacks.EarlyStopping(monitor="val_loss", patience=4, restore_best_weights=True),
]
model.compile(
    optimizer=keras.optimizers.Adam(1e-2), loss="binary_crossentropy",
    metrics=[keras.metrics.AUC(name="auc"), keras.metrics.Precision(), keras.metrics.Recall()],
)
model.fit(
    train, train_targets, batch_size=128, epochs=12, verbose=2, callbacks=callbacks,
    validation_data=(val, val_targets), class_weight={0: weight_for_0, 1: weight_for_1},
)
best = keras.models.load_model(path)
probabilities = best.predict(val, verbose=0)
print("Validation accuracy of the best:", np.mean((probabilities > 0.5) == val_targets))
