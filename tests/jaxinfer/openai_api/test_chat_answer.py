"""Chunks of a chat's stream, of outputs that are made up: joined they are the whole answer."""

from collections import defaultdict
from typing import Any

from jaxinfer.logprobs import Logprob
from jaxinfer.openai_api.chat_answer import ChatStream, chat_completion
from jaxinfer.openai_api.chat_logprobs import LogprobWriter
from jaxinfer.openai_api.heads import AnswerHead
from jaxinfer.openai_api.tool_choice import ToolChoice
from jaxinfer.outputs import CompletionOutput, RequestOutput, ToolCall, Usage
from jaxinfer.tokenizers.protocol import Tokenizer

HEAD = AnswerHead.new("chatcmpl", "m")
CALLS = (ToolCall("1", "f", "{}"), ToolCall("2", "g", '{"a": 1}'))


class _Letters:
    """Token i is the byte i, and 0 a special token."""

    def token_bytes(self, token_id: int) -> bytes:
        return b"" if token_id == 0 else bytes([token_id])


def writer(num_top: int = 0) -> LogprobWriter:
    tokenizer: Tokenizer = _Letters()  # type: ignore[assignment]  # of all of it this is asked
    return LogprobWriter(tokenizer, num_top)


def output(*sequences: CompletionOutput) -> RequestOutput:
    is_finished = all(sequence.finish_reason is not None for sequence in sequences)
    return RequestOutput("r", "p", [1, 2], list(sequences), is_finished, None, Usage(2, 3, 1))


def sequence(index: int, text: str, delta: str, num_tokens: int, reason: Any = None, **more: Any) -> CompletionOutput:
    logprobs = [{97 + i: Logprob(-float(i), 1, chr(97 + i))} for i in range(num_tokens)]
    return CompletionOutput(index, text, list(range(num_tokens)), reason, delta, logprobs=logprobs, **more)


def join(chunks: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Of each choice what a client puts together."""
    whole: dict[int, dict[str, Any]] = defaultdict(lambda: {"content": "", "logprobs": [], "calls": [], "ends": []})
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        told = whole[choice["index"]]
        assert not told["ends"], "nothing comes after the reason"
        told["content"] += choice["delta"].get("content") or ""
        told["logprobs"] += (choice["logprobs"] or {"content": []})["content"]
        told["calls"] += choice["delta"].get("tool_calls", [])
        if choice["finish_reason"]:
            told["ends"].append((choice["finish_reason"], choice["stop_reason"]))
    return whole


STATES = [
    output(sequence(0, "", "", 1), sequence(1, "a", "a", 1)),  # the text of the first is held back
    output(sequence(0, "abc", "abc", 3), sequence(1, "a", "", 2, "tool_calls", tool_calls=CALLS)),
    output(
        sequence(0, "abcd", "d", 5, "stop", stop_reason="e"), sequence(1, "a", "", 2, "tool_calls", tool_calls=CALLS)
    ),
]


def test_chunks_joined_are_the_whole_answer() -> None:
    choice = ToolChoice([])
    stream = ChatStream(HEAD, choice, writer(), include_usage=False)
    chunks = [chunk for state in STATES for chunk in stream.chunks(0, state)]
    assert stream.last(STATES[-1:]) == []
    whole = chat_completion(HEAD, STATES[-1], choice, writer()).model_dump()
    joined = join(chunks)
    assert len(joined) == len(whole["choices"]) == 2
    for told in whole["choices"]:
        streamed, message = joined[told["index"]], told["message"]
        assert streamed["content"] == message["content"]
        assert streamed["logprobs"] == told["logprobs"]["content"]
        calls = [call | {"index": i} for i, call in enumerate(message.get("tool_calls") or [])]
        assert streamed["calls"] == calls
        assert streamed["ends"] == [(told["finish_reason"], told["stop_reason"])]
    assert [len(streamed["calls"]) for streamed in joined.values()] == [0, 2]


def test_what_all_chunks_have() -> None:
    for include_usage in (False, True):
        stream = ChatStream(HEAD, ToolChoice(None), writer(), include_usage=include_usage)
        chunks = [chunk for state in STATES for chunk in stream.chunks(0, state)]
        for chunk in chunks:
            head = {name: value for name, value in chunk.items() if name not in ("choices", "object", "usage")}
            assert (head, chunk["object"], len(chunk["choices"])) == (vars(HEAD), "chat.completion.chunk", 1)
            assert ("usage" in chunk, chunk.get("usage")) == (include_usage, None)
        choices = [chunk["choices"][0] for chunk in chunks]
        firsts = {choice["index"]: choice["delta"] for choice in reversed(choices)}
        assert firsts == {index: {"role": "assistant", "content": ""} for index in (0, 1)}
        assert sum("role" in choice["delta"] for choice in choices) == 2
    [last] = stream.last(STATES[-1:])
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 5)


def test_an_answer_that_only_calls_has_no_content() -> None:
    called = output(sequence(0, "", "", 1, "tool_calls", tool_calls=CALLS))
    empty = output(sequence(0, "", "", 1, "stop"))
    assert chat_completion(HEAD, called, ToolChoice([]), writer()).choices[0].message.content is None
    message = chat_completion(HEAD, empty, ToolChoice(None), writer()).choices[0].message
    assert message.model_dump() == {"role": "assistant", "content": "", "refusal": None}


def test_the_likeliest_tokens_come_first_and_as_many_as_were_asked_for() -> None:
    """The token itself is among them only where it is so likely."""
    likely = {97: Logprob(-1.5, 2, "a"), 98: Logprob(-0.5, 1, "b")}
    unlikely = {99: Logprob(-9.0, 30, "c"), 98: Logprob(-0.5, 1, "b"), 97: Logprob(-1.5, 2, "a")}
    told = writer(2).content([likely, unlikely]).content
    assert [token.token for token in told] == ["a", "c"]
    assert [[top.token for top in token.top_logprobs] for token in told] == [["b", "a"], ["b", "a"]]
    assert [top.logprob for top in told[1].top_logprobs] == [-0.5, -1.5]
    assert [token.top_logprobs for token in writer().content([likely, unlikely]).content] == [[], []]


def test_tokens_that_are_no_text_of_their_own() -> None:
    part, special, impossible = Logprob(-1.0, 1, "\ufffd"), Logprob(-1.0, 1, "</s>"), Logprob(-float("inf"), 9, "a")
    told = writer().content([{0xE2: part}, {0: special}, {97: impossible}]).content
    assert [(token.token, token.bytes, token.logprob) for token in told] == [
        ("\ufffd", [0xE2], -1.0),
        ("</s>", None, -1.0),
        ("a", [97], -9999.0),
    ]
