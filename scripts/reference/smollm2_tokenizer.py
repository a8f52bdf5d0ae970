"""SmolLM2's tokenizer from its GGUF: ids of difficult texts, and conversations as its chat template writes them.

transformers reads the vocabulary, the merges and the template; how text is cut before merging it does not take from
the file, so the cutting that SmolLM2's own ``tokenizer.json`` states is set here: digits one by one, then GPT-2's
pattern.
"""

import random
from pathlib import Path

import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from reference.fixture import Array, Sources, require, write_reference

SEED = 11
NUM_TEXTS = 1000
RANGES = [
    (0x00, 0x20),
    (0x20, 0x7F),
    (0xA0, 0x250),
    (0x300, 0x370),
    (0x600, 0x66A),
    (0x200B, 0x2010),
    (0x2160, 0x2188),
    (0x4E00, 0x4F00),
    (0xE000, 0x110000),
    (0x1F300, 0x1F6FF),
]
GLUE = ["", " ", "   ", "\n", "\r\n\n", "\t", "'s", "\u200d", "2024", "  3.14", "<|im_end|>", "<|im_start|>user\n"]
CONVERSATIONS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": "Antworte kurz."}, {"role": "user", "content": "Größe & <b>\"'?"}],
    [
        {"role": "user", "content": "Hi 👩‍💻"},
        {"role": "assistant", "content": "Hello!\n\nHow can I help?"},
        {"role": "user", "content": "  spaces kept  "},
    ],
]


def make(sources: Sources) -> None:
    """Write ``smollm2_tokenizer``: 1,000 random texts with their ids as arrays, three conversations as text."""
    path = sources.require_smollm2()
    tokenizer = load_tokenizer(path)
    texts = _texts()
    encoded = [tokenizer.encode(text) for text in texts]
    as_bytes = [text.encode() for text in texts]
    write_reference(
        sources.fixtures / "smollm2_tokenizer",
        {
            "texts": Array(np.frombuffer(b"".join(as_bytes), np.uint8), "the texts in UTF-8, one after the other"),
            "text_lens": Array(np.array([*map(len, as_bytes)], np.int32), "bytes of each text"),
            "ids": Array(np.concatenate(encoded).astype(np.uint16), "the ids of all texts, one after the other"),
            "id_lens": Array(np.array([*map(len, encoded)], np.int32), "ids of each text"),
        },
        f"SmolLM2-135M-Instruct ({path.name}): ids of random texts, conversations as its template writes.",
        chats=[
            {
                "messages": messages,
                "add_generation_prompt": add,
                "text": tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=add),
            }
            for messages in CONVERSATIONS
            for add in (False, True)
        ],
    )


def load_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """The tokenizer in the GGUF at ``path``, cutting text as the file's key ``tokenizer.ggml.pre`` says."""
    require(gguf.GGUFReader(path).fields["tokenizer.ggml.pre"].contents() == "smollm", "the text is cut as for smollm")
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    digits = Digits(individual_digits=True)
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence([digits, ByteLevel(add_prefix_space=False)])
    return tokenizer


def _texts() -> list[str]:
    draw = random.Random(SEED)

    def part() -> str:
        low, high = draw.choice(RANGES)
        return "".join(chr(draw.randrange(low, high)) for _ in range(draw.randint(1, 3))) + draw.choice(GLUE)

    return ["".join(part() for _ in range(draw.randint(1, 6))) for _ in range(NUM_TEXTS)]
