"""Checkpoints in Hugging Face's layout whose matrices another library has quantized: GPTQ, AWQ and compressed-tensors.

They replace a module's ``weight`` by several tensors of packed whole numbers, zero points and scales. ``PackedSource``
shows those as the one tensor they stand for, so that the loader and its tables know nothing of them.
"""
