"""What a checkpoint says about its model beside the weights."""

from dataclasses import dataclass
from typing import Any

from checkpoints.config_fields import Fields
from jaxinfer.config import ModelConfig


@dataclass(frozen=True)
class Description:
    """The model's shape and the tokens that end a text, as far as the checkpoint names them.

    Attributes:
        config: the shape of the model.
        eos_token_ids: the tokens that end a text; empty where the checkpoint leaves it to the tokenizer.
    """

    config: ModelConfig
    eos_token_ids: tuple[int, ...] = ()


def model_config(fields: Fields, **values: Any) -> ModelConfig:
    """``ModelConfig(**values)``, its errors with the name of the file that the values came from."""
    try:
        return ModelConfig(**values)
    except ValueError as error:
        raise ValueError(f"{fields.path}: {error}") from error


def token_id(fields: Fields, key: str, vocab_size: int) -> int | None:
    """One token id, or None where the key is absent.

    Raises:
        ValueError: it is not an id of the vocabulary.
    """
    if fields.given(key) is None:
        return None
    value = fields.integer(key)
    if not 0 <= value < vocab_size:
        raise fields.error(key, f"a token id below the vocabulary's {vocab_size}")
    return value


def token_ids(fields: Fields, key: str, vocab_size: int) -> tuple[int, ...]:
    """One token id or a list of them, without repetitions; empty where the key is absent.

    Raises:
        ValueError: an entry is not an id of the vocabulary.
    """
    listed = fields.given(key)
    if not isinstance(listed, list):
        one = token_id(fields, key, vocab_size)
        return () if one is None else (one,)
    for value in listed:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocab_size:
            raise fields.error(key, f"token ids below the vocabulary's {vocab_size}")
    return tuple(dict.fromkeys(listed))
