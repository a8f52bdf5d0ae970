"""Tests of the checkpoint readers."""
