"""Reading weights: files in, a ``ModelConfig`` and named arrays out."""
