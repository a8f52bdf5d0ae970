"""Programs compiled for GPUs that are not there. `make test-gpu-compile` runs these in an environment of their own."""
