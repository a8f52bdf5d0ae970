"""SmolLM2-135M-Instruct from its GGUF: logits over real text, and greedy answers.

All logits of 512 positions are 100 MB. Kept is what lets a test judge every position: the same 256 columns of the
vocabulary everywhere, the largest 8, and the log of the sum over all of them, which any wrong column would move.
"""

from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM

from reference.fixture import Array, Sources, require, write_reference
from reference.greedy import greedy
from reference.smollm2_tokenizer import load_tokenizer

NUM_TOKENS = 512
NUM_COLUMNS = 256
NUM_TOP = 8
NUM_GREEDY = 40
SEED = 5
CHAT = [{"role": "user", "content": "What is the capital of France?"}]
TEXTS = ["Once upon a time", "The three primary colors are", "def fibonacci(n):"]


def make(sources: Sources) -> None:
    """Write the logits of the first 512 tokens of WikiText-2's test text and the greedy answers to four prompts."""
    path = sources.require_smollm2()
    tokenizer = load_tokenizer(path)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    _check_weights(path, model)

    text = sources.in_data("wikitext2_test.txt").read_text(encoding="utf-8")
    token_ids = tokenizer.encode(text)[:NUM_TOKENS]
    prompts = [tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, tokenize=False), *TEXTS]
    prompt_ids = [tokenizer.encode(prompt) for prompt in prompts]
    answers = [greedy(model, ids, NUM_GREEDY) for ids in prompt_ids]
    write_reference(
        sources.fixtures / "smollm2",
        {
            **_logit_arrays(model, token_ids),
            "greedy_ids": Array(np.stack([ids for ids, _ in answers]), "[prompts, 40] greedy tokens, on past EOS"),
            "greedy_margins": Array(
                np.stack([margins for _, margins in answers]), "[prompts, 40], chosen logit minus the second largest"
            ),
        },
        f"SmolLM2-135M-Instruct ({path.name}) in float32: wikitext2_test.txt, and greedy answers to prompts.",
        chat=CHAT,
        prompts=[
            {"text": prompt, "token_ids": ids, "answer": tokenizer.decode(answer)}
            for prompt, ids, (answer, _) in zip(prompts, prompt_ids, answers, strict=True)
        ],
    )


def _logit_arrays(model: torch.nn.Module, token_ids: list[int]) -> dict[str, Array]:
    with torch.inference_mode():
        logits = model(torch.tensor([token_ids])).logits[0]
    top = logits.topk(NUM_TOP)
    columns = np.sort(np.random.default_rng(SEED).choice(logits.shape[1], NUM_COLUMNS, replace=False))
    following = logits[torch.arange(len(token_ids) - 1), token_ids[1:]]
    return {
        "token_ids": Array(np.array(token_ids, np.int32), "T = 512, the first tokens of wikitext2_test.txt"),
        "columns": Array(columns.astype(np.int32), "256 token ids drawn at random, ascending"),
        "column_logits": Array(logits[:, columns].numpy(), "[T, 256], logits of `columns` at every position"),
        "top_ids": Array(top.indices.numpy().astype(np.int32), "[T, 8], largest first; [:, 0] is the argmax"),
        "top_logits": Array(top.values.numpy(), "[T, 8], their logits; [:, 0] - [:, 1] is the margin"),
        "logsumexp": Array(logits.double().logsumexp(1).numpy(), "[T], log of the sum of exp over the vocabulary"),
        "next_logits": Array(following.numpy(), "[T - 1], logit of the token that follows in the text"),
    }


def _check_weights(path: Path, model: torch.nn.Module) -> None:
    """transformers holds the floats that the gguf library dequantizes, the rows of q and k in its own order."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    layer = model.model.layers[3]
    dim = model.config.head_dim
    pairs = np.concatenate([np.arange(0, dim, 2), np.arange(1, dim, 2)])  # GGUF turns (2 i, 2 i + 1) together
    for name, parameter, rows_per_head in (
        ("token_embd", model.model.embed_tokens.weight, None),
        ("output_norm", model.model.norm.weight, None),
        ("blk.3.attn_v", layer.self_attn.v_proj.weight, None),
        ("blk.3.attn_q", layer.self_attn.q_proj.weight, pairs),
        ("blk.3.attn_k", layer.self_attn.k_proj.weight, pairs),
        ("blk.3.ffn_down", layer.mlp.down_proj.weight, None),
    ):
        tensor = tensors[name + ".weight"]
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        if rows_per_head is not None:
            values = values.reshape(-1, dim, values.shape[1])[:, rows_per_head].reshape(values.shape)
        require(np.array_equal(values, parameter.detach().numpy()), f"transformers reads {name} as gguf does")
