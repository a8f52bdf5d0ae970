"""Measurements of a running engine from outside: load, times, and what they come to."""
