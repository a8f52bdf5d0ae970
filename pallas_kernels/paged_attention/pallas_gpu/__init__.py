"""Paged attention as a GPU kernel, in Pallas' Triton dialect.

``launch`` is what the api calls. One kernel body (``attend``) serves decode rows and pieces of prompts: a program has a
tile of query rows, one kv head and one share of the keys. ``append`` is its prologue for decode rows, whose newest
token is not in the cache yet; ``merge`` puts the shares together. ``operands`` and ``tile`` say what a program has in
hand.
"""
