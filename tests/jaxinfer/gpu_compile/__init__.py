"""The parts of `jaxinfer.gpu_compile` that need no compiler."""
