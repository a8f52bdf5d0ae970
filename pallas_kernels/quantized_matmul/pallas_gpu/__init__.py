"""The product as a Pallas kernel for GPUs."""
