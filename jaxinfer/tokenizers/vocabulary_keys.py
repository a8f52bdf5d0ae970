"""The keys of a GGUF file that describe its vocabulary, with types checked: any writer may have put anything there."""

import reprlib
from pathlib import Path

from jaxinfer.gguf_header import GGUFArray, read_header


class VocabularyKeys:
    """Keys ``tokenizer.ggml.*`` of one file; ``name`` below is what follows that prefix.

    Raises:
        ValueError: the file cannot be read as a GGUF; from each method, a value is missing or of another type. The
            message names the file and the key.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metadata = read_header(path).metadata

    def error(self, name: str, what_is_wrong: str) -> ValueError:
        """What to raise about a key."""
        return ValueError(f"{self.path}: tokenizer.ggml.{name} {what_is_wrong}")

    def chat_template(self) -> str | None:
        """The one key of a vocabulary that has another prefix."""
        return self._typed("tokenizer.chat_template", str)

    def optional[T](self, name: str, kind: type[T]) -> T | None:
        """The value; None where the file does not have it."""
        return self._typed(f"tokenizer.ggml.{name}", kind)

    def value[T](self, name: str, kind: type[T]) -> T:
        """The value."""
        value = self.optional(name, kind)
        if value is None:
            raise ValueError(f"{self.path} has no tokenizer.ggml.{name}, which its vocabulary needs")
        return value

    def items[T](self, name: str, kind: type[T]) -> list[T]:
        """The items of an array."""
        array = self.value(name, GGUFArray)
        try:
            items = array.items()
        except ValueError as error:
            raise self.error(name, f"cannot be read: {error}") from error
        wanted: list[T] = [item for item in items if isinstance(item, kind)]
        if len(wanted) != len(items):
            raise ValueError(f"{self.path}: the items of tokenizer.ggml.{name} must be of type {kind.__name__}")
        return wanted

    def tokens(self) -> list[str]:
        """The spelling of each token."""
        tokens = self.items("tokens", str)
        num_unlike = len(set(tokens))
        if num_unlike != len(tokens):
            raise self.error("tokens", f"has {len(tokens)} entries of which only {num_unlike} differ")
        return tokens

    def of_each_token[T](self, name: str, kind: type[T], num_tokens: int) -> list[T]:
        """The items of an array that has one for each token."""
        items = self.items(name, kind)
        if len(items) != num_tokens:
            raise self.error(name, f"has {len(items)} entries for {num_tokens} tokens")
        return items

    def token_id(self, name: str, num_tokens: int) -> int | None:
        """The id of a special token, such as "bos"; None where the file does not name one."""
        token_id = self.optional(f"{name}_token_id", int)
        if token_id is not None and not 0 <= token_id < num_tokens:
            raise self.error(f"{name}_token_id", f"is {token_id}; the vocabulary has ids 0 to {num_tokens - 1}")
        return token_id

    def _typed[T](self, key: str, kind: type[T]) -> T | None:
        value = self._metadata.get(key)
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{self.path}: {key} is {reprlib.repr(value)}; its type must be {kind.__name__}")
        return value
