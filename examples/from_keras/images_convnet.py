"""A small convnet that tells squares, circles and crosses apart."""

import numpy as np
import ztorch as keras
from ztorch import layers

keras.utils.set_random_seed(3)
num_classes = 3
input_shape = (16, 16, 1)


def make_images(count, seed):
    """Noisy drawings of one shape each, as bytes, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(num_classes, size=count)
    images = rng.integers(0, 60, size=(count, 16, 16))
    rows, columns = np.mgrid[:16, :16]
    for image, label in zip(images, y):
        r, c = rows - rng.integers(6, 10), columns - rng.integers(6, 10)
        size = rng.integers(3, 6)
        shape = [np.maximum(abs(r), abs(c)) == size,
                 abs(np.hypot(r, c) - size) < 0.7,
                 (abs(r) == abs(c)) & (abs(r) <= size)][label]
        image[shape] = 200
    return images.astype("uint8"), y


x_train, y_train = make_images(1200, 0)
x_test, y_test = make_images(300, 1)
x_train = x_train.astype("float32") / 255
x_test = x_test.astype("float32") / 255
x_train = np.expand_dims(x_train, -1)
x_test = np.expand_dims(x_test, -1)
print("x_train shape:", x_train.shape)
y_train = keras.utils.to_categorical(y_train, num_classes)
y_test = keras.utils.to_categorical(y_test, num_classes)

model = keras.Sequential(
    [
        keras.Input(shape=input_shape),
        layers.Conv2D(16, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Conv2D(32, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Flatten(),
        layers.Dropout(0.3),
        layers.Dense(num_classes, activation="softmax"),
    ]
)
model.summary()
model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=32, epochs=6, validation_split=0.1, verbose=2)

score = model.evaluate(x_test, y_test, verbose=0)
print("Test loss:", score[0])
print("Test accuracy:", score[1])
