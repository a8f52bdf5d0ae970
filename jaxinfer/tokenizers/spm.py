"""``tokenizer.model``: a SentencePiece vocabulary, encoded and decoded by the ``sentencepiece`` library."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import sentencepiece

from jaxinfer.tokenizers.protocol import TextStream
from jaxinfer.tokenizers.side_files import read_side_files
from jaxinfer.tokenizers.streams import WindowStream, incomplete_utf8_tail
from jaxinfer.tokenizers.template_chat import ChatByTemplate
from jaxinfer.tokenizers.texts import checked_text
from jaxinfer.tokenizers.token_ids import checked_token_ids

_SPACE = (" ", "\u2581")  # the second is how the library writes the first
_NO_DUMMY_PREFIX = b"\x1a\x02\x18\x00"  # normalizer_spec (field 3, two bytes): add_dummy_prefix (field 3) is false


class SentencePieceTokenizer(ChatByTemplate):
    """A SentencePiece model with what the engine asks of one; see ``jaxinfer.tokenizers.protocol``.

    The library takes text literally: ``<s>`` in a prompt is three characters. Only without ``add_special_tokens``, for
    text that a chat template wrote, do the spellings of control tokens become these tokens. What comes after one of
    them is encoded as a text of its own, before which many vocabularies put a space; where it begins with a space, that
    is the one. So the ids are those of the makers: Llama's encode each turn after ``<s>`` as a text, and write no space
    there in the template; Mistral's encode each piece between control tokens as a text, and a template writes its
    space. transformers agrees where its setting ``legacy`` is true; where it is false, no space is put after a control
    token. llama.cpp always puts one, so it has two where the template wrote one.
    """

    def __init__(
        self,
        processor: sentencepiece.SentencePieceProcessor,
        *,
        bos_token_id: int | None,
        eos_token_id: int | None,
        add_bos: bool,
        chat_template: str | None,
        chat_template_file: Path | None = None,
        chat_adds_bos: bool = False,
    ) -> None:
        """``add_bos``: BOS first, where there is one.

        ``chat_adds_bos``: before a conversation as well, where its template writes none.

        Raises:
            RuntimeError: the library refuses the vocabulary without its space before a text, as it does where the
                vocabulary brings texts to test itself by.
            UnicodeDecodeError: a piece is not UTF-8.
        """
        self._processor = processor
        self._after_space = _without_dummy_prefix(processor)
        self._add_bos = add_bos
        self.vocab_size: int = processor.vocab_size()
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.chat_template, self.chat_template_file = chat_template, chat_template_file
        self.chat_adds_bos = chat_adds_bos
        pieces = map(processor.id_to_piece, range(self.vocab_size))  # all of them, so that a broken one is found now
        self._control_ids = {piece: token_id for token_id, piece in enumerate(pieces) if processor.is_control(token_id)}
        processor.decode([processor.unk_id()])  # its text is a setting of its own
        self._control_pattern = re.compile("(" + "|".join(map(re.escape, self._control_ids)) + ")")

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        checked_text(text)
        if not add_special_tokens:
            return self._encode_with_control_tokens(text)
        ids = self._processor.encode(text)
        return [self.bos_token_id, *ids] if self._add_bos and self.bos_token_id is not None else ids

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._processor.decode(self._known(token_ids))

    def token_id(self, spelling: str) -> int | None:
        token_id = self._processor.piece_to_id(spelling)  # of what is not there it gives the unknown token
        return token_id if self._processor.id_to_piece(token_id) == spelling else None

    def token_text(self, token_id: int) -> str:
        return "".join(map(self._processor.id_to_piece, self._known([token_id])))

    def token_bytes(self, token_id: int) -> bytes:
        if not self._known([token_id]) or self._processor.is_control(token_id):
            return b""
        if self._processor.is_byte(token_id):
            return bytes([int(self._processor.id_to_piece(token_id)[1:-1], 16)])
        word_id, word = self._word
        return self.decode([word_id, token_id])[len(word) :].encode()

    def text_stream(self, context: Sequence[int] = ()) -> TextStream:
        processor = self._processor
        return WindowStream(
            self._known, self.decode, self._num_unsettled, processor.is_control, processor.is_byte, context
        )

    @cached_property
    def _word(self) -> tuple[int, str]:
        """A token with which text has begun, and its text: before it the library may drop all spaces."""
        ids = (token_id for token_id in range(self.vocab_size) if not self._processor.is_byte(token_id))
        word_id = next((token_id for token_id in ids if self.decode([token_id]).strip()), self._processor.unk_id())
        return word_id, self.decode([word_id])

    def _known(self, token_ids: Sequence[int]) -> list[int]:
        """The ids that have a token."""
        return [token_id for token_id in checked_token_ids(token_ids) if token_id < self.vocab_size]

    def _encode_with_control_tokens(self, text: str) -> list[int]:
        if not self._control_ids:
            return self._processor.encode(text)
        ids: list[int] = []
        for i, part in enumerate(self._control_pattern.split(text)):
            if i % 2:
                ids.append(self._control_ids[part])
            else:
                has_space = i > 0 and part.startswith(_SPACE)
                ids += (self._after_space if has_space else self._processor).encode(part)
        return ids

    def _num_unsettled(self, held: Sequence[int]) -> int:
        """Byte tokens at the end that may become a character; the library reads a run of them one by one."""
        data = b""
        for token_id in reversed(held):
            if not self._processor.is_byte(token_id):
                break
            data = self.token_bytes(token_id) + data
        return incomplete_utf8_tail(data)


def _without_dummy_prefix(processor: sentencepiece.SentencePieceProcessor) -> sentencepiece.SentencePieceProcessor:
    """The same vocabulary, which puts no space before a text, for a text that begins with one.

    Where the vocabulary drops such a space it is needed as it is: what it puts there is the only one.

    In a protocol buffer, a message that comes once more is merged into the first. So the setting is changed by what
    follows the model, without a library that reads such buffers.
    """
    model: bytes = processor.serialized_model_proto()
    without = sentencepiece.SentencePieceProcessor(model_proto=model + _NO_DUMMY_PREFIX)
    return without if without.encode(" ") else processor


def load_sentencepiece(path: Path) -> SentencePieceTokenizer:
    """Reads the SentencePiece model at ``path`` and the files beside it.

    BOS and EOS are the vocabulary's own. BOS comes first where there is one, unless ``tokenizer_config.json`` says
    ``add_bos_token`` false.

    Raises:
        ValueError: a file cannot be read.
    """
    side = read_side_files(path.parent)
    with sentencepiece_errors(path):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        return SentencePieceTokenizer(
            processor,
            bos_token_id=processor.bos_id() if processor.bos_id() >= 0 else None,
            eos_token_id=processor.eos_id() if processor.eos_id() >= 0 else None,
            add_bos=side.add_bos_token is not False,
            chat_template=side.chat_template,
            chat_template_file=side.chat_template_file,
        )


@contextmanager
def sentencepiece_errors(path: Path) -> Iterator[None]:
    """Around the library's reading of ``path``: ValueError names the file."""
    try:
        yield
    except (RuntimeError, OSError, UnicodeDecodeError) as error:  # the last at a piece that is not UTF-8
        raise ValueError(f"{path} cannot be read as a SentencePiece model: {error}") from error
