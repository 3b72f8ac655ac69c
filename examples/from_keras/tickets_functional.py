"""A model with three inputs and two outputs: how urgent is a ticket, and who is to answer it?"""

import numpy as np
import ztorch as keras
from ztorch import layers

keras.utils.set_random_seed(1)
num_tags = 12  # Number of unique issue tags
num_words = 300  # Size of vocabulary obtained when preprocessing text data
num_departments = 4  # Number of departments for predictions
rng = np.random.default_rng(0)


def make_tickets(count):
    """Titles and bodies as word ids, tags, and their priority and department."""
    department = rng.integers(num_departments, size=count)
    title = rng.integers(num_words, size=(count, 10))
    body = rng.integers(num_words, size=(count, 30))
    # Each department has words of its own.
    own = rng.random((count, 10)) < 0.4
    title[own] = (title[own] % 20) + 20 * np.repeat(department, own.sum(1))
    tags = rng.integers(2, size=(count, num_tags)).astype("float32")
    urgent = (tags[:, :3].sum(1) + 2 * ((body < 10).sum(1) > 1) > 2).astype("float32")
    inputs = {"title": title, "body": body, "tags": tags}
    dept_targets = keras.utils.to_categorical(department, num_departments)
    return inputs, {"priority": urgent[:, None], "department": dept_targets}


title_input = keras.Input(shape=(None,), name="title")  # Variable-length sequence of ints
body_input = keras.Input(shape=(None,), name="body")
tags_input = keras.Input(shape=(num_tags,), name="tags")

title_features = layers.Embedding(num_words, 32)(title_input)
body_features = layers.Embedding(num_words, 16)(body_input)
title_features = layers.GlobalAveragePooling1D()(title_features)
body_features = layers.LSTM(16)(body_features)

# Merge all available features into a single large vector via concatenation
x = layers.Concatenate()([title_features, body_features, tags_input])
x = layers.Dense(32, activation="relu")(x)

priority_pred = layers.Dense(1, name="priority", activation="sigmoid")(x)
department_pred = layers.Dense(num_departments, name="department", activation="softmax")(x)

model = keras.Model(
    inputs=[title_input, body_input, tags_input],
    outputs={"priority": priority_pred, "department": department_pred},
)
model.compile(
    optimizer=keras.optimizers.RMSprop(5e-3),
    loss={
        "priority": keras.losses.BinaryCrossentropy(),
        "department": keras.losses.CategoricalCrossentropy(),
    },
    loss_weights={"priority": 1.0, "department": 0.5},
    metrics={"priority": ["accuracy"], "department": ["accuracy"]},
)
inputs, targets = make_tickets(1280)
model.fit(inputs, targets, epochs=5, batch_size=32, verbose=2)

test_inputs, test_targets = make_tickets(320)
results = model.evaluate(test_inputs, test_targets, return_dict=True, verbose=0)
print("Test accuracy of departments:", results["department_accuracy"])
print("Test accuracy of priorities:", results["priority_accuracy"])
