"""A GAN, whose class has a train_step and no call, learns to draw rings."""

import numpy as np
import keras
import torch
from keras import layers

keras.utils.set_random_seed(3)
latent_dim = 16


def make_rings(count):
    """Pictures of one ring each, of any place and size, with soft edges."""
    rng = np.random.default_rng(0)
    row, column = np.mgrid[:8, :8]
    y, x, radius = (rng.uniform(*ends, (count, 1, 1)) for ends in ((3, 4), (3, 4), (1.5, 3)))
    distance = np.abs(np.hypot(row - y, column - x) - radius)
    return np.exp(-distance**2).astype("float32")[..., None]


x_train = make_rings(640)

discriminator = keras.Sequential(
    [
        keras.Input(shape=(8, 8, 1)),
        layers.Conv2D(16, 3, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(32, 3, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.GlobalMaxPooling2D(),
        layers.Dense(1),
    ],
    name="discriminator",
)
generator = keras.Sequential(
    [
        keras.Input(shape=(latent_dim,)),
        layers.Dense(4 * 4 * 16),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Reshape((4, 4, 16)),
        layers.Conv2DTranspose(16, 4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(1, 5, padding="same", activation="sigmoid"),
    ],
    name="generator",
)


class GAN(keras.Model):
    def __init__(self, discriminator, generator, latent_dim):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.latent_dim = latent_dim
        self.d_loss_tracker = keras.metrics.Mean(name="d_loss")
        self.g_loss_tracker = keras.metrics.Mean(name="g_loss")
        self.seed_generator = keras.random.SeedGenerator(1337)
        self.built = True

    @property
    def metrics(self):
        return [self.d_loss_tracker, self.g_loss_tracker]

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn

    def train_step(self, real_images):
        # Sample random points in the latent space
        batch_size = keras.ops.shape(real_images)[0]
        random_latent_vectors = keras.random.normal(
            shape=(batch_size, self.latent_dim), seed=self.seed_generator
        )

        # Decode them to fake images
        generated_images = self.generator(random_latent_vectors)

        # Combine them with real images
        combined_images = keras.ops.concatenate([generated_images, real_images], axis=0)

        # Assemble labels discriminating real from fake images
        labels = keras.ops.concatenate(
            [keras.ops.ones((batch_size, 1)), keras.ops.zeros((batch_size, 1))], axis=0
        )
        # Add random noise to the labels - important trick!
        labels += 0.05 * keras.random.uniform(keras.ops.shape(labels), seed=self.seed_generator)

        # Train the discriminator
        predictions = self.discriminator(combined_images)
        d_loss = self.loss_fn(labels, predictions)
        self.minimize(d_loss, self.discriminator.trainable_weights, self.d_optimizer)

        # Sample random points in the latent space
        random_latent_vectors = keras.random.normal(
            shape=(batch_size, self.latent_dim), seed=self.seed_generator
        )

        # Assemble labels that say "all real images"
        misleading_labels = keras.ops.zeros((batch_size, 1))

        # Train the generator (note that we should *not* update the weights
        # of the discriminator)!
        predictions = self.discriminator(self.generator(random_latent_vectors))
        g_loss = self.loss_fn(misleading_labels, predictions)
        self.minimize(g_loss, self.generator.trainable_weights, self.g_optimizer)

        # Update metrics and return their value.
        self.d_loss_tracker.update_state(d_loss)
        self.g_loss_tracker.update_state(g_loss)
        return {
            "d_loss": self.d_loss_tracker.result(),
            "g_loss": self.g_loss_tracker.result(),
        }

    def minimize(self, loss, weights, optimizer):
        gradients = torch.autograd.grad(loss, [v.value for v in weights])
        with torch.no_grad():
            optimizer.apply(gradients, weights)


gan = GAN(discriminator=discriminator, generator=generator, latent_dim=latent_dim)
gan.compile(
    d_optimizer=keras.optimizers.Adam(learning_rate=0.0003),
    g_optimizer=keras.optimizers.Adam(learning_rate=0.0003),
    loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
)
gan.fit(x_train, batch_size=64, epochs=6, verbose=2)

drawn = generator.predict(np.random.default_rng(1).normal(size=(640, latent_dim)), verbose=0)
told_apart = (discriminator.predict(drawn, verbose=0) > 0).mean()
recognized = (discriminator.predict(x_train, verbose=0) < 0).mean()
print("Discriminator accuracy:", (told_apart + recognized) / 2)
