"""Text to token ids and back: one protocol, one file per kind of vocabulary."""
