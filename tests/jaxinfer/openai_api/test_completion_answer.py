"""Answers of outputs that are made up: pieces joined are the whole, and tokens begin where their text does."""

import math
from typing import Any

import pytest

from jaxinfer.logprobs import Logprob
from jaxinfer.openai_api.completion_answer import CompletionStream, completion
from jaxinfer.openai_api.completion_body import CompletionBody
from jaxinfer.openai_api.heads import AnswerHead
from jaxinfer.outputs import CompletionOutput, RequestOutput, Usage
from jaxinfer.tokenizers.protocol import Tokenizer
from tests.jaxinfer.tool_calls.vocabulary import byte_tokenizer

HEAD = AnswerHead.new("cmpl", "m")
TOKENIZER = byte_tokenizer()
PROMPT = "<s>ä: "
EURO = TOKENIZER.encode("€")  # three tokens


def told(token_ids: list[int]) -> list[dict[int, Logprob]]:
    return [{token_id: Logprob(-float(token_id), 1, None)} for token_id in token_ids]


def output(
    *sequences: CompletionOutput,
    prompt: str | None = PROMPT,
    num_known: int | None = None,
    tokens: list[int] | None = None,
) -> RequestOutput:
    """An output to the prompt; ``num_known`` of the prompt's log-probabilities are there."""
    token_ids = TOKENIZER.encode(PROMPT) if tokens is None else tokens
    known: list[dict[int, Logprob] | None] = [None, *told(token_ids[1:])]
    return RequestOutput(
        request_id="r",
        prompt=prompt,
        prompt_token_ids=token_ids,
        outputs=list(sequences),
        finished=all(sequence.finish_reason for sequence in sequences),
        metrics=None,
        usage=Usage(len(token_ids), 7, 0),
        prompt_logprobs=None if num_known is None else known[:num_known],
    )


def sequence(index: int, text: str, token_ids: list[int], reason: Any = None, **more: Any) -> CompletionOutput:
    # What a client is told does not hang on the deltas, some of which may have gone by.
    return CompletionOutput(index, text, token_ids, reason, "", logprobs=told(token_ids), **more)


def body(**fields: Any) -> CompletionBody:
    return CompletionBody(prompt=PROMPT, **fields)


def only_choice(asked: CompletionBody, given: RequestOutput, tokenizer: Tokenizer | None = TOKENIZER) -> dict[str, Any]:
    [choice] = completion(HEAD, asked, tokenizer, [given]).model_dump()["choices"]
    return choice


def test_where_tokens_begin_in_bytes_of_characters_and_spelled_special_tokens() -> None:
    choice = only_choice(body(echo=True, logprobs=0), output(sequence(0, "€!", [*EURO, 0], "length"), num_known=5))
    assert choice["text"] == "<s>ä: €!"
    lists = choice["logprobs"]
    # <s> is a token, ä and € are two and three.
    assert lists["text_offset"] == [0, 3, 3, 4, 5, 6, 6, 6, 7]
    assert lists["tokens"] == ["<s>", "�", "�", ":", " ", "�", "�", "�", "!"]
    assert lists["top_logprobs"][0] is lists["token_logprobs"][0] is None
    assert lists["token_logprobs"][1:] == [-float(i) for i in [*TOKENIZER.encode(PROMPT)[1:], *EURO, 0]]


def test_without_the_prompt_in_the_text_offsets_begin_at_zero() -> None:
    lists = only_choice(body(logprobs=0), output(sequence(0, "€!", [*EURO, 0], "length")))["logprobs"]
    assert lists["text_offset"] == [0, 0, 0, 1]


def test_the_likeliest_of_equal_texts_is_told_and_nothing_is_minus_infinity() -> None:
    first, second, other = EURO[0], EURO[1], TOKENIZER.encode("a")[0]
    known = [{first: Logprob(-3.0, 3, None), other: Logprob(-math.inf, 9, None), second: Logprob(-1.0, 1, None)}]
    given = CompletionOutput(0, "", [first], "length", "", logprobs=known)
    lists = only_choice(body(logprobs=2), output(given))["logprobs"]
    assert lists["token_logprobs"] == [-3.0]
    assert list(lists["top_logprobs"][0].items()) == [("�", -1.0), ("a", -9999.0)]


def test_a_model_without_a_tokenizer_tells_ids() -> None:
    given = output(sequence(0, "", [5, 6], "length"), prompt=None, num_known=2, tokens=[3, 4])
    choice = only_choice(body(echo=True, logprobs=0, return_token_ids=True), given, None)
    assert (choice["text"], choice["token_ids"], choice["prompt_token_ids"]) == ("", [5, 6], [3, 4])
    assert choice["logprobs"]["tokens"] == ["token_id:3", "token_id:4", "token_id:5", "token_id:6"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 0, 0]


@pytest.mark.parametrize("fields", [{}, {"logprobs": 0}, {"logprobs": 0, "echo": True, "return_token_ids": True}])
def test_a_stream_joined_is_the_whole_answer(fields: dict[str, Any]) -> None:
    """The second sequence has text before the first knows the prompt's log-probabilities, and then ends at once."""
    echoed = fields.get("echo")
    ended = sequence(1, "b", [1], "stop", stop_reason="c")
    states = [
        output(sequence(0, "", []), ended, num_known=2 if echoed else None),
        output(sequence(0, "", EURO[:2]), ended, num_known=5 if echoed else None),
        output(sequence(0, "€", [*EURO, 7]), ended, num_known=5 if echoed else None),
        output(sequence(0, "€(", [*EURO, 7], "length"), ended, num_known=5 if echoed else None),
    ]
    stream = CompletionStream(HEAD, body(**fields), TOKENIZER)
    chunks = [chunk for state in states for chunk in stream.chunks(1, state)]
    whole = completion(HEAD, body(**fields), TOKENIZER, [states[-1], states[-1]]).model_dump()["choices"][2:]
    for choice in whole:
        pieces = [piece for chunk in chunks for piece in chunk["choices"] if piece["index"] == choice["index"]]
        assert "".join(piece["text"] for piece in pieces) == choice["text"]
        assert [piece["finish_reason"] for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
        assert (pieces[-1]["finish_reason"], pieces[-1]["stop_reason"]) == (
            choice["finish_reason"],
            choice["stop_reason"],
        )
        for name in choice["logprobs"] or ():
            assert [value for piece in pieces for value in piece["logprobs"][name]] == choice["logprobs"][name]
        if fields.get("return_token_ids"):
            assert [token_id for piece in pieces for token_id in piece["token_ids"]] == choice["token_ids"]
            assert [piece["prompt_token_ids"] for piece in pieces][1:] == [None] * (len(pieces) - 1)
            assert pieces[0]["prompt_token_ids"] == choice["prompt_token_ids"] == TOKENIZER.encode(PROMPT)
    assert [choice["index"] for choice in whole] == [2, 3]


def test_nothing_is_told_where_nothing_is_new() -> None:
    stream = CompletionStream(HEAD, body(stream=True, stream_options={"include_usage": True}), TOKENIZER)
    assert stream.chunks(0, output(sequence(0, "", EURO[:1]))) == []
    ended = output(sequence(0, "€", EURO, "length"))
    [chunk] = stream.chunks(0, ended)
    assert chunk["usage"] is None
    assert stream.chunks(0, ended) == []
    [last] = stream.last([ended])
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 7)
