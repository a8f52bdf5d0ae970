"""Words that are not to be written, as the tokens that would write them."""

from collections.abc import Sequence

from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.value_checks import shown


def bad_word_ids(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The sequences of tokens that write each of ``words`` at the beginning of a text, and after a space.

    The definition is vLLM's (``SamplingParams.update_from_tokenizer``): the form with the space counts only where it
    has as many tokens and another first one, so that a space that is a token of its own is not forbidden.

    Raises:
        ValueError: the vocabulary cannot encode one, or one is nothing but spaces.
    """
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        bare = word.lstrip()
        alone, spaced = (tuple(tokenizer.encode(prefix + bare, add_special_tokens=False)) for prefix in ("", " "))
        if not alone:
            raise ValueError(f"bad_words has {shown(word)}, of which no token is left without the spaces before it")
        found[alone] = None
        if len(spaced) == len(alone) and spaced[0] != alone[0]:
            found[spaced] = None
    return tuple(found)
