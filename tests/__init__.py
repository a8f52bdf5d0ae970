"""A package, so that tests share helpers as ``tests.x`` and no folder here shadows the package it mirrors."""
