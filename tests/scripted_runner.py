"""A runner that draws what it was told, so that a test can write the very tokens that an engine gets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jaxinfer.batch import Batch
from jaxinfer.token_masks import TokenBits


@dataclass(frozen=True)
class ScriptedStep:
    """A step and the tokens that it draws."""

    batch: Batch
    token_ids: list[int]

    def read(self) -> list[int]:
        return self.token_ids


class ScriptedRunner:
    """Draws for each request the tokens of its script, and after them EOS; what is forbidden it draws all the same.

    Args:
        scripts: by the scheduler's request id; that of several sequences of one request is ``id/index``.
        vocab_size: of the model that it stands for.
        eos_token_id: what it draws after a script.
    """

    def __init__(self, scripts: Mapping[str, Sequence[int]], *, vocab_size: int, eos_token_id: int) -> None:
        self.vocab_size, self._eos_token_id = vocab_size, eos_token_id
        self._scripts: dict[str, Iterator[int]] = {name: iter(script) for name, script in scripts.items()}

    def forward(self, batch: Batch) -> ScriptedStep:
        eos, scripts = self._eos_token_id, self._scripts
        tokens = [next(scripts[row.request.request_id], eos) if row.samples else 0 for row in batch.rows]
        return ScriptedStep(batch, tokens)

    def sample(self, step: ScriptedStep, forbidden: Sequence[TokenBits | None] = ()) -> ScriptedStep:
        return step
