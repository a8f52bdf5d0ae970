"""What the engine makes of a text that ends: why it ended, which tokens it has, and that nothing of it goes on."""

from collections.abc import Mapping
from typing import Any

import pytest

from checkpoints import open_checkpoint
from jaxinfer.config import EngineConfig
from jaxinfer.engine import Engine
from jaxinfer.llm import LLM
from jaxinfer.loading import LoadedModel
from jaxinfer.output_filter import FilteredText, OutputFilterFactory
from jaxinfer.outputs import CompletionOutput, RequestOutput
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.tool_calls.llama3 import LLAMA3
from jaxinfer.tool_calls.mistral import MISTRAL
from tests.engines import TINY_MISTRAL
from tests.jaxinfer.test_output_filter import Blocklist, Recorder, Redactor, Scripted
from tests.jaxinfer.tool_calls.vocabulary import ADDED, byte_tokenizer
from tests.scripted_runner import ScriptedRunner

TOKENIZER = byte_tokenizer(added=[*ADDED, "d stop, more", "xEN", "D"])
EOS = TOKENIZER.token_id("</s>")
CALL = '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]'


class Scene:
    """An engine whose model writes, for each sequence, what it was told, and all that it gave out."""

    def __init__(self, texts: Mapping[str, str], output_filter: OutputFilterFactory | None = None) -> None:
        config = EngineConfig(max_model_len=128, num_kv_pages=64, page_size=8, max_num_seqs=8, max_chunk_tokens=16)
        self.scripts = {name: TOKENIZER.encode(text) for name, text in texts.items()}
        runner: Any = ScriptedRunner(self.scripts, vocab_size=TOKENIZER.vocab_size, eos_token_id=EOS)
        self.engine = Engine(runner, config, tokenizer=TOKENIZER, eos_token_ids=[EOS], output_filter=output_filter)
        self.free_at_start = self.engine.scheduler.num_free_pages
        self.seen: dict[str, list[RequestOutput]] = {}

    def add(self, name: str, *, stream: bool = True, tool_format: Any = None, **params: Any) -> None:
        self.seen[name] = []
        params = {"max_tokens": 100} | params
        self.engine.add_request(name, "hi", SamplingParams(**params), stream=stream, tool_format=tool_format)

    def finish(self) -> None:
        while self.engine.has_unfinished:
            for output in self.engine.step():
                self.seen[output.request_id].append(output)
        assert self.engine.scheduler.num_free_pages == self.free_at_start, "all pages are free"
        for outputs in self.seen.values():
            for index in range(len(outputs[0].outputs)):
                deltas = "".join(output.outputs[index].delta for output in outputs)
                assert deltas == outputs[-1].outputs[index].text
            assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]

    def last(self, name: str) -> list[CompletionOutput]:
        return self.seen[name][-1].outputs


def alone(text: str, output_filter: OutputFilterFactory | None = None, **params: Any) -> CompletionOutput:
    """What one request gives, streamed, which is what it gives at once."""
    results = []
    for stream in (True, False):
        scene = Scene({"a": text}, output_filter)
        scene.add("a", stream=stream, **params)
        scene.finish()
        [completion] = scene.last("a")
        results.append((completion.text, completion.token_ids, completion.finish_reason, completion.stop_reason))
    assert results[0] == results[1]
    return completion


def ended(completion: CompletionOutput) -> tuple[str, str | None, int | str | None]:
    return completion.text, completion.finish_reason, completion.stop_reason


@pytest.mark.parametrize("include", [False, True])
def test_the_token_that_completes_a_stop_string_is_the_last(include: bool) -> None:
    """The step after it was launched already; what it drew is dropped."""
    completion = alone("One. END Two.", stop=["nothing", "END"], include_stop_str_in_output=include)
    assert ended(completion) == ("One. END" if include else "One. ", "stop", "END")
    assert completion.token_ids == TOKENIZER.encode("One. END")


def test_a_token_with_text_behind_the_stop_string_is_cut() -> None:
    for include, text in ((False, "goo"), (True, "good stop")):
        completion = alone("good stop, more", stop="d stop", include_stop_str_in_output=include)
        assert ended(completion) == (text, "stop", "d stop")
        assert completion.token_ids == TOKENIZER.encode("good stop, more")


def test_a_stop_string_across_tokens_of_several_characters() -> None:
    completion = alone("oxEND.", stop="END")
    assert completion.token_ids == [TOKENIZER.token_id(token) for token in ("o", "xEN", "D")]
    assert ended(completion) == ("ox", "stop", "END")


def test_max_tokens_at_the_very_token_of_the_stop_string() -> None:
    for max_tokens, expected in ((4, ("a ", "stop", "EN")), (3, ("a E", "length", None)), (5, ("a ", "stop", "EN"))):
        assert ended(alone("a ENx", stop="EN", max_tokens=max_tokens)) == expected


def test_max_tokens_at_the_very_token_that_completes_the_form() -> None:
    """As at that of a stop string; where the form may go on the text is cut off."""
    for choices, max_tokens, expected in (
        (["ab"], 3, ("ab", "stop", None)),
        (["ab"], 2, ("ab", "stop", None)),
        (["ab"], 1, ("a", "length", None)),
        (["ab", "abc"], 2, ("ab", "length", None)),
    ):
        form = StructuredOutputsParams(choice=choices)
        assert ended(alone("ab", structured_outputs=form, max_tokens=max_tokens)) == expected


def test_a_call_counts_that_a_form_completes_at_the_very_last_token() -> None:
    call = '{"name": "f", "parameters": {"a": 1}}'
    form = StructuredOutputsParams(choice=[call])
    for num_missing, reason in ((0, "tool_calls"), (1, "length")):
        scene = Scene({"a": call})
        scene.add("a", tool_format=LLAMA3, structured_outputs=form, max_tokens=len(call) - num_missing)
        scene.finish()
        assert scene.last("a")[0].finish_reason == reason


def test_a_stop_token_is_no_part_of_the_form() -> None:
    [x] = TOKENIZER.encode("x")
    form = StructuredOutputsParams(choice=["ab"])
    for max_tokens in (2, 9):
        completion = alone("ax", structured_outputs=form, stop_token_ids=[x], max_tokens=max_tokens)
        assert ended(completion) == ("a", "stop", x)


def test_eos_right_behind_the_stop_string_or_before_its_end() -> None:
    completion = alone("a EN", stop="EN")
    assert (ended(completion), completion.token_ids) == (("a ", "stop", "EN"), TOKENIZER.encode("a EN"))
    completion = alone("a E", stop="EN")
    assert (ended(completion), completion.token_ids[-1]) == (("a E", "stop", None), EOS), "what was held comes out"


def test_min_tokens_lets_an_early_stop_string_pass() -> None:
    assert ended(alone("ababab", stop="ab", min_tokens=3)) == ("abab", "stop", "ab")
    assert ended(alone("ababab", stop="ab", min_tokens=6, max_tokens=6)) == ("ababab", "length", None)


def test_a_stop_string_of_two_characters_that_tokens_split() -> None:
    completion = alone("ok 漢字 no", stop="漢字")
    assert ended(completion) == ("ok ", "stop", "漢字")
    assert completion.token_ids == TOKENIZER.encode("ok 漢字")


def test_a_stop_token_that_the_caller_named_is_told_from_eos() -> None:
    [x] = TOKENIZER.encode("x")
    assert ended(alone("abx", stop="no", stop_token_ids=[x])) == ("ab", "stop", x)
    assert ended(alone("ab", stop="no", stop_token_ids=[x])) == ("ab", "stop", None)


def test_an_abort_gives_what_was_held() -> None:
    scene = Scene({"a": "xEEEE"})
    scene.add("a", stop="EEEEEE")
    for _ in range(4):
        for output in scene.engine.step():
            scene.seen["a"].append(output)
    aborted = scene.engine.abort("a")
    assert aborted is not None
    [last] = aborted.outputs
    assert ended(last) == (TOKENIZER.decode(last.token_ids), "abort", None)
    assert "x" + last.delta == last.text != "x", "the beginning of a stop string comes out at the end only"


def test_one_sequence_of_several_stops_and_the_others_go_on() -> None:
    texts = {"a/0": "long text", "a/1": "a|b", "a/2": "|", "b": "abc|"}
    scene = Scene(texts)
    scene.add("a", n=3, stop="|")
    scene.add("b")
    scene.finish()
    assert [ended(completion) for completion in scene.last("a")] == [
        ("long text", "stop", None),
        ("a", "stop", "|"),
        ("", "stop", "|"),
    ]
    assert [len(completion.token_ids) for completion in scene.last("a")] == [10, 2, 1]
    assert ended(scene.last("b")[0]) == ("abc|", "stop", None), "a request without stop strings has none"


def test_its_pages_are_free_before_the_others_end() -> None:
    scene = Scene({"a": "a|", "b": "b" * 50})
    scene.add("a", stop="|")
    scene.add("b")
    while not (scene.seen["a"] and scene.seen["a"][-1].finished):
        for output in scene.engine.step():
            scene.seen[output.request_id].append(output)
    assert (scene.engine.scheduler.num_running, scene.engine.has_unfinished) == (1, True)
    scene.finish()
    assert ended(scene.last("b")[0]) == ("b" * 50, "stop", None)


def test_calls_before_a_stop_string_count() -> None:
    scene = Scene({"a": f"So:{CALL}|x", "b": f"So:|{CALL}", "c": f"So:{CALL[:-3]}|x"})
    for name in "abc":
        scene.add(name, stop="|", tool_format=MISTRAL)
    scene.finish()
    assert ended(scene.last("a")[0]) == ("So:", "tool_calls", None)
    assert [call.name for call in scene.last("a")[0].tool_calls] == ["f"]
    assert ended(scene.last("b")[0]) == ("So:", "stop", "|")
    assert ended(scene.last("c")[0]) == ("So:" + CALL[len("[TOOL_CALLS]") : -3], "stop", "|")


def test_a_filter_ends_a_request() -> None:
    completion = alone("so bad, more", lambda: Blocklist("bad"))
    assert ended(completion) == ("so ", "content_filter", None)
    assert completion.token_ids == TOKENIZER.encode("so bad")
    assert ended(alone("so good", lambda: Blocklist("bad"))) == ("so good", "stop", None)
    assert ended(alone("so bad", lambda: Blocklist("bad"), max_tokens=6)) == ("so ", "content_filter", None)
    assert ended(alone("ab", lambda: Scripted(lambda text: FilteredText("", ends=True)))) == (
        "",
        "content_filter",
        None,
    )
    at_end = lambda: Scripted(on_settle=lambda: FilteredText("!", ends=True))  # noqa: E731
    assert ended(alone("ab", at_end)) == ("ab!", "content_filter", None)


def test_a_filter_changes_what_is_released() -> None:
    assert ended(alone("no 12\n3", Redactor)) == ("no ***\n***", "stop", None)


def test_every_sequence_has_a_filter_of_its_own() -> None:
    made: list[Recorder] = []

    def make() -> Recorder:
        made.append(Recorder())
        return made[-1]

    scene = Scene({"a/0": "ab", "a/1": "cd", "b": "e"}, make)
    scene.add("a", n=2)
    scene.add("b")
    scene.finish()
    assert [guard.asked for guard in made] == [["a", "b", None], ["c", "d", None], ["e", None]]


@pytest.mark.parametrize("where", ["push", "settle", "type"])
def test_a_filter_that_raises_ends_its_own_request_only(where: str) -> None:
    def fail(*text: str) -> FilteredText:
        if text and text[0] != "!":
            return FilteredText(*text)
        raise RuntimeError("the guard is asleep")

    guards = {
        "push": lambda: Scripted(on_push=fail),
        "settle": lambda: Scripted(on_settle=fail),
        "type": lambda: Scripted(on_push=lambda text: "!" if text == "!" else FilteredText(text)),
    }
    made = iter([guards[where], Recorder, Recorder])
    scene = Scene({"a": "ab!c", "b": "de!f", "c/0": "x"}, lambda: next(made)())
    for name in ("a", "b"):
        scene.add(name)
    scene.finish()
    [failed], output = scene.last("a"), scene.seen["a"][-1]
    assert (failed.finish_reason, failed.stop_reason) == ("error", None)
    assert failed.text == ("ab!c" if where == "settle" else "ab")
    assert output.error is not None
    assert ("the guard is asleep" in output.error) == (where != "type")
    assert ended(scene.last("b")[0]) == ("de!f", "stop", None)


def test_what_a_filter_raises_is_told_in_part() -> None:
    """An error may quote a whole text, say nothing, or not even be written."""

    class Unwritable(Exception):
        def __str__(self) -> str:
            raise self

    for fault, told in (
        (ValueError("x" * 10**6), f"its answer cannot go on: {'x' * 1000}..."),
        (KeyError(), "its answer cannot go on: KeyError"),
        (Unwritable(), "its answer cannot go on: Unwritable"),
    ):
        guard = Scripted(on_push=lambda text, fault=fault: (_ for _ in ()).throw(fault))
        scene = Scene({"a": "ab"}, lambda guard=guard: guard)
        scene.add("a")
        scene.finish()
        assert scene.seen["a"][-1].error == told


def test_a_filter_that_cannot_be_made_refuses_its_own_request_only() -> None:
    def make() -> Recorder:
        if len(made) == 2:
            raise RuntimeError("no guard is free")
        made.append(Recorder())
        return made[-1]

    made: list[Recorder] = []
    scene = Scene({"a": "ab", "b/0": "cd"}, make)
    scene.add("a")
    with pytest.raises(ValueError, match="no output filter can be made: no guard is free"):
        scene.add("b", n=2)
    del scene.seen["b"]
    scene.finish()
    assert ended(scene.last("a")[0]) == ("ab", "stop", None)


def test_a_filter_sees_calls() -> None:
    scene = Scene({"a": CALL + " bad", "b": CALL + " good"}, lambda: Blocklist("bad"))
    for name in "ab":
        scene.add(name, tool_format=MISTRAL)
    scene.finish()
    assert (scene.last("a")[0].finish_reason, scene.last("a")[0].tool_calls) == ("content_filter", ())
    assert (scene.last("b")[0].finish_reason, len(scene.last("b")[0].tool_calls)) == ("tool_calls", 1)


def test_a_text_without_a_tokenizer_cannot_be_looked_for() -> None:
    config = EngineConfig(max_model_len=128, num_kv_pages=64, page_size=8)
    runner: Any = ScriptedRunner({}, vocab_size=10, eos_token_id=2)
    engine = Engine(runner, config, tokenizer=None, eos_token_ids=[2])
    with pytest.raises(ValueError, match="stop is text and the model has no tokenizer"):
        engine.add_request("a", [1], SamplingParams(stop="x"))
    assert not engine.has_unfinished


def test_llm_takes_a_filter_to_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reached(Exception):
        pass

    def engine(*arguments: object, output_filter: object, **others: object) -> None:
        assert output_filter is Recorder
        raise Reached

    monkeypatch.setattr("jaxinfer.loading.Engine", engine)
    checkpoint = open_checkpoint(TINY_MISTRAL)
    loaded = LoadedModel("tiny", checkpoint.config, lambda dtype, quant: checkpoint.weights(dtype), None, ())
    with pytest.raises(Reached):
        LLM(loaded, output_filter=Recorder, max_model_len=64, num_kv_pages=16)
    with pytest.raises(ValueError, match="output_filter is 5; it must be a function, or a class, that makes an Output"):
        LLM(loaded, output_filter=5)  # type: ignore[arg-type]
