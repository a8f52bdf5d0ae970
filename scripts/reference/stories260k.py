"""What the trained 260 K model writes greedily, as ids: the text that came with it stands in the data folder."""

import sentencepiece
import torch
from transformers import LlamaForCausalLM

from reference.fixture import Array, Sources, require, write_reference
from reference.greedy import greedy

NUM_TOKENS = 200


def make(sources: Sources) -> None:
    """Write the 200 greedy ids after BOS, once their text equals the one in the data folder."""
    checkpoint = sources.in_data("stories260K-hf")
    model = LlamaForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()
    bos = model.config.bos_token_id
    greedy_ids, margins = greedy(model, [bos], NUM_TOKENS)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(checkpoint / "tokenizer.model"))
    expected = sources.in_data("stories260K-greedy-200.txt").read_text(encoding="utf-8")
    require(tokenizer.decode(greedy_ids.tolist()) + "\n" == expected, "the text is that of stories260K-greedy-200.txt")
    write_reference(
        sources.fixtures / "stories260K",
        {
            "greedy_ids": Array(greedy_ids, "200 greedy tokens after the prompt [BOS]"),
            "greedy_margins": Array(margins, "[200], the chosen token's logit minus the second largest"),
        },
        "Greedy tokens of stories260K-hf in float32.",
        prompt_token_ids=[bos],
    )
