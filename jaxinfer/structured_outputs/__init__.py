"""Answers of a given form: a JSON schema, a regular expression, a choice or a grammar, held by masks of tokens."""
