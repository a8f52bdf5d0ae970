"""GPU kernels and their portable versions, usable without the engine: one folder per operation."""
