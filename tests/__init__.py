"""A package of its own, so that `tests.x` is a helper from here even where some dependency installs a `tests`."""
