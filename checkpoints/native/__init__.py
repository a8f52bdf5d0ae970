"""Checkpoints of our own: each weight as the device holds it, so that loading neither converts nor rounds anything.

A folder with ``jaxinfer.json``, the manifest; ``weights/PART``, one orbax checkpoint for each part of the model (a
layer, or a weight outside of the layers), so that neither writing nor reading ever holds more than one; and the files
of the tokenizer. What reads the manifest needs no jax; what reads and writes arrays is in ``restore`` and ``writer``.
"""
