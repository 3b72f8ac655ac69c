"""A convolutional net on the digits, with layers that change the images while it trains."""

import ztorch as zt
from ztorch import layers as L

(x, y), (x_test, y_test) = zt.data.load("digits")

model = zt.Sequential([
    L.Input((8, 8, 1)),
    L.ZeroPadding2D(1), L.RandomCrop(8, 8),  # moves the digit by up to a pixel, in training only
    L.Conv2D(16, 3, padding="same", use_bias=False),
    L.BatchNormalization(momentum=0.9),
    L.Activation("relu"),
    L.MaxPooling2D(2),
    L.Conv2D(32, 3, padding="same", activation="relu"),
    L.GlobalAveragePooling2D(),
    L.Dropout(0.1),
    L.Dense(10, activation="softmax"),
], name="digits_conv", seed=1)
model.summary()

program = model.compile("cpu", batch_size=32, optimizer=zt.optimizers.Adam(5e-3),
                        loss="sparse_categorical_crossentropy", metrics=["accuracy"])
stop = zt.callbacks.EarlyStopping(monitor="val_accuracy", patience=8, restore_best_weights=True)
history = program.fit(x, y, epochs=25, validation_split=0.1, callbacks=[stop], verbose=0)

for epoch in range(0, len(history.epoch), 5):
    print(f"epoch {epoch + 1:2}: loss {history.history['loss'][epoch]:.3f}, "
          f"validation accuracy {history.history['val_accuracy'][epoch]:.3f}")
loss, accuracy = program.evaluate(x_test, y_test, verbose=0)
print(f"test accuracy: {accuracy:.3f}")

probabilities = program.predict(x_test)
wrong = (probabilities.argmax(axis=1) != y_test).nonzero()[0]
for row in wrong[:3]:
    guess = probabilities[row].argmax()
    print(f"row {row}: a {y_test[row]} taken for a {guess} "
          f"with probability {probabilities[row, guess]:.2f}")
