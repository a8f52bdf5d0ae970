"""The INT4 product once more, written in Triton itself and called through jax_triton, which needs jax below 0.12."""
