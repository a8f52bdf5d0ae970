"""What a checkpoint says about its model beside the weights."""

from dataclasses import dataclass

from checkpoints.config_fields import Fields
from checkpoints.packed.config import Packing
from jaxinfer.config import ModelConfig


@dataclass(frozen=True)
class Description:
    """The model's shape and the tokens that end a text, as far as the checkpoint names them.

    Attributes:
        config: the shape of the model.
        eos_token_ids: the tokens that end a text; empty where the checkpoint leaves it to the tokenizer.
        eos_spellings: of control tokens that end a text too where the tokenizer has them.
        packing: how another library has packed the matrices, which the loader's sources must undo; None: it has not.
    """

    config: ModelConfig
    eos_token_ids: tuple[int, ...] = ()
    eos_spellings: tuple[str, ...] = ()
    packing: Packing | None = None


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
