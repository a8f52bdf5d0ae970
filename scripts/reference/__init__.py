"""The recipes of the reference fixtures, one file per fixture; ``scripts/make_reference.py`` runs them."""
