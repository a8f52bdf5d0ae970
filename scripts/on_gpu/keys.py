"""Keys for random inputs."""

import jax


def random_key(seed: int) -> jax.Array:
    """A key of the generator that a device has built in: a program that draws with it compiles twice as fast, and
    billions of numbers are drawn in the end. Its streams are less independent, which does not matter here.
    """
    return jax.random.key(seed, impl="unsafe_rbg")
