"""The engine over a model that writes what it is told: what its caller sees of calls, streamed and not, and cut off."""

import pytest

from jaxinfer.config import EngineConfig
from jaxinfer.engine import Engine
from jaxinfer.outputs import CompletionOutput
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.tool_calls import ToolCallFormat
from jaxinfer.tool_calls.llama3 import LLAMA3
from jaxinfer.tool_calls.mistral import MISTRAL
from jaxinfer.tool_calls.qwen import QWEN
from tests.jaxinfer.tool_calls.vocabulary import byte_tokenizer
from tests.scripted_runner import ScriptedRunner

TOKENIZER = byte_tokenizer()
EOS = TOKENIZER.token_id("</s>")
CALLS = [
    (MISTRAL, '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]'),
    (LLAMA3, '<|python_tag|>{"name": "f", "parameters": {"a": 1}}'),
    (QWEN, '\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'),
]


def answers(
    texts: dict[str, str], tool_format: ToolCallFormat | None, *, max_tokens: int = 200
) -> dict[str, list[CompletionOutput]]:
    """The outputs of requests that write ``texts`` side by side, as they stream."""
    config = EngineConfig(max_model_len=256, num_kv_pages=64, page_size=8, max_num_seqs=4, max_chunk_tokens=16)
    scripts = {name: TOKENIZER.encode(text) for name, text in texts.items()}
    runner = ScriptedRunner(scripts, vocab_size=TOKENIZER.vocab_size, eos_token_id=EOS)
    engine = Engine(runner, config, tokenizer=TOKENIZER, eos_token_ids=[EOS])  # type: ignore[arg-type]
    for name in texts:
        params = SamplingParams(temperature=0, max_tokens=max_tokens)
        engine.add_request(name, "hi", params, tool_format=tool_format, stream=True)
    seen: dict[str, list[CompletionOutput]] = {name: [] for name in texts}
    while engine.has_unfinished:
        for output in engine.step():
            seen[output.request_id] += output.outputs
            assert output.error is None
    return seen


@pytest.mark.parametrize(("tool_format", "call"), CALLS, ids=["mistral", "llama3", "qwen"])
def test_a_call_ends_an_answer_beside_others(tool_format: ToolCallFormat, call: str) -> None:
    broken = "So:" + call.partition("1}")[0]
    seen = answers({"calls": "Well," + call, "talks": "Well, no.", "breaks off": broken}, tool_format)
    last = {name: outputs[-1] for name, outputs in seen.items()}
    assert {name: output.finish_reason for name, output in last.items()} == (
        {"calls": "tool_calls", "talks": "stop", "breaks off": "stop"}
    )
    [found] = last["calls"].tool_calls
    assert (found.name, found.arguments) == ("f", '{"a": 1}')
    assert {name: output.text for name, output in last.items()} == {
        "calls": "Well,",
        "talks": "Well, no.",
        "breaks off": TOKENIZER.decode(TOKENIZER.encode(broken)),
    }
    for outputs in seen.values():
        assert "".join(output.delta for output in outputs) == outputs[-1].text
        assert all(output.tool_calls == () and output.finish_reason is None for output in outputs[:-1])


@pytest.mark.parametrize(("tool_format", "call"), CALLS, ids=["mistral", "llama3", "qwen"])
def test_a_call_that_ran_out_of_tokens_is_text(tool_format: ToolCallFormat, call: str) -> None:
    """One that looks whole too: nobody knows what the model would have written next."""
    ids = TOKENIZER.encode(call)
    for num_tokens in (len(ids) - 3, len(ids)):
        [*_, last] = answers({"a": call}, tool_format, max_tokens=num_tokens)["a"]
        assert (last.finish_reason, last.tool_calls, last.text) == ("length", (), TOKENIZER.decode(ids[:num_tokens]))


@pytest.mark.parametrize(("tool_format", "call"), CALLS, ids=["mistral", "llama3", "qwen"])
def test_a_call_of_an_aborted_request_is_text(tool_format: ToolCallFormat, call: str) -> None:
    """The caller wanted no more of it; and the model had not ended its answer."""
    ids = TOKENIZER.encode(call + "..")
    config = EngineConfig(max_model_len=256, num_kv_pages=64, page_size=8, max_num_seqs=4, max_chunk_tokens=16)
    runner = ScriptedRunner({"a": ids}, vocab_size=TOKENIZER.vocab_size, eos_token_id=EOS)
    engine = Engine(runner, config, tokenizer=TOKENIZER, eos_token_ids=[EOS])  # type: ignore[arg-type]
    engine.add_request("a", "hi", SamplingParams(temperature=0, max_tokens=200), tool_format=tool_format, stream=True)
    deltas: list[str] = []
    while len(deltas) < len(ids) - 1:
        deltas += [output.outputs[0].delta for output in engine.step()]
    output = engine.abort("a")
    assert output is not None
    [last] = output.outputs
    assert (last.finish_reason, last.tool_calls) == ("abort", ())
    assert "".join(deltas) + last.delta == last.text == TOKENIZER.decode(last.token_ids)
    assert TOKENIZER.decode(TOKENIZER.encode(call)) in last.text


@pytest.mark.parametrize(("tool_format", "call"), CALLS, ids=["mistral", "llama3", "qwen"])
def test_text_around_a_call_is_in_the_output(tool_format: ToolCallFormat, call: str) -> None:
    before = "" if tool_format is LLAMA3 else "Well,"
    [*_, last] = answers({"a": before + call + " so."}, tool_format)["a"]
    assert (last.finish_reason, last.text, len(last.tool_calls)) == ("tool_calls", before + " so.", 1)


def test_without_a_format_calls_are_text() -> None:
    [*_, last] = answers({"a": CALLS[2][1]}, None)["a"]
    assert (last.finish_reason, last.tool_calls, last.text) == ("stop", (), CALLS[2][1])
