"""The product as a GPU kernel, in Pallas' Triton dialect.

``launch`` is what the api calls. One kernel body (``multiply``) serves all formats of the matrix, few rows and many: a
program has a tile of the result and goes along the inputs. ``numbers`` takes the formats apart; ``operands`` and
``tile`` say what a program has in hand.
"""
