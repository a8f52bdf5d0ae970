"""The Python API: one output for each prompt, in order, and nothing that one prompt contains harms another."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoints import PRESETS
from jaxinfer.llm import LLM
from jaxinfer.loading import open_model
from jaxinfer.output_filter import FilteredText
from jaxinfer.sampling_params import SamplingParams
from tests.engines import greedy, one_program
from tests.jaxinfer.test_output_filter import Recorder

HI = [{"role": "user", "content": "Once upon a time"}]


def text_of(llm: LLM, prompt: str, params: SamplingParams) -> str:
    [output] = llm.generate(prompt, params)
    return output.outputs[0].text


def test_outputs_are_one_to_one_with_prompts_and_in_their_order(llm: LLM) -> None:
    prompts = ["Once upon a time", "Lily", "The dog ran", "One day", "Tom had a", "He saw", "She"]
    params = [greedy(20 - 2 * i) for i in range(len(prompts))]  # the last prompts end first
    outputs = llm.generate(prompts, params)
    assert [output.prompt for output in outputs] == prompts
    for output, prompt, wanted in zip(outputs, prompts, params, strict=True):
        assert output.outputs[0].text == text_of(llm, prompt, wanted)
        assert len(output.outputs[0].token_ids) == wanted.max_tokens
        assert output.prompt_token_ids == llm.tokenizer.encode(prompt)


def test_text_and_its_ids_give_the_same(llm: LLM) -> None:
    ids = llm.tokenizer.encode("Once upon a time")
    prompts = ["Once upon a time", {"prompt_token_ids": ids}, {"prompt": "Once upon a time"}]
    by_text, by_ids, by_dict = llm.generate(prompts, greedy(10))
    assert by_text.outputs[0].text == by_ids.outputs[0].text == by_dict.outputs[0].text
    assert by_ids.prompt is None


def test_prompt_and_text_read_on(llm: LLM) -> None:
    [output] = llm.generate("Once upon a time", greedy(6))
    whole = llm.tokenizer.decode(output.prompt_token_ids + output.outputs[0].token_ids)
    assert "Once upon a time" + output.outputs[0].text == whole


def test_a_stream_joins_to_the_text(llm: LLM) -> None:
    prompts = ["Once upon a time", "Lily and Tom"]
    whole = [output.outputs[0].text for output in llm.generate(prompts, greedy(30))]
    joined: dict[str, str] = {}
    for output in llm.stream(prompts, greedy(30)):
        joined[output.request_id] = joined.get(output.request_id, "") + output.outputs[0].delta
        assert output.outputs[0].text == joined[output.request_id]
    assert list(joined.values()) == whole


def test_leaving_a_stream_ends_its_requests(llm: LLM) -> None:
    stream = llm.stream(["Once upon a time", "Lily"], greedy(60))
    next(stream)
    assert llm.engine.has_unfinished
    stream.close()
    assert not llm.engine.has_unfinished


def test_streams_consumed_in_turns_each_get_their_own(llm: LLM) -> None:
    """One stream's steps also bring the tokens of the others: they must reach whom they are for."""
    expected = [text_of(llm, prompt, greedy(n)) for prompt, n in (("Once upon a time", 12), ("Lily", 25))]
    streams = [llm.stream("Once upon a time", greedy(12)), llm.stream("Lily", greedy(25))]
    texts = ["", ""]
    for outputs in itertools.zip_longest(*streams):
        for i, output in enumerate(outputs):
            texts[i] += output.outputs[0].delta if output else ""
    assert texts == expected


def test_generate_inside_a_stream_harms_neither(llm: LLM) -> None:
    expected = [text_of(llm, prompt, greedy(12)) for prompt in ("Once upon a time", "Lily")]
    text = ""
    for output in llm.stream("Once upon a time", greedy(12)):
        text += output.outputs[0].delta
        assert text_of(llm, "Lily", greedy(12)) == expected[1]
    assert text == expected[0]


def test_a_bad_prompt_among_good_ones_has_its_error_and_the_others_their_text(llm: LLM) -> None:
    bad = {
        1: ("", "the prompt is empty"),
        2: ({"prompt_token_ids": []}, "empty prompt"),
        3: ({"prompt_token_ids": [1, 512]}, "512; a token id"),
        4: ({"prompt_token_ids": [1] * 129}, "the prompt has 129 tokens and max_model_len is 128"),
        5: ({"token_ids": [1]}, "it must be text, "),
        6: (17, "it must be text, "),
        7: ({"prompt_token_ids": None}, "prompt is None; it must be a list"),
        8: ({"prompt_token_ids": 5}, "prompt is 5; it must be a list"),
        12: ({"prompt": 5}, "prompt is 5; it must be text"),
        11: ({"prompt_token_ids": "12"}, "prompt_token_ids is '12'; it must be a list"),
        9: ("Lily \ud800 ran", "surrogate"),
        10: ({"messages": [{"role": "user", "content": "Hello"}]}, "template"),
        0: ({"prompt": "Lily", "messages": HI}, "the keys 'messages' and 'prompt'; only one of them can be answered"),
        15: ({"prompt_token_ids": [1], "messages": HI}, "the keys 'messages' and 'prompt_token_ids'; only one of"),
        13: ({"prompt": "Lily", "cache_salt": 5}, "cache_salt is 5; it must be text"),
        14: ({"prompt_token_ids": [1], "cache_salt": b"a"}, "cache_salt is b'a'; it must be text"),
    }
    prompts = [bad[i][0] if i in bad else "Once upon a time" for i in range(18)]
    outputs = llm.generate(prompts, greedy(5))
    good = text_of(llm, "Once upon a time", greedy(5))
    for i, output in enumerate(outputs):
        assert output.finished
        if i in bad:
            assert bad[i][1] in output.error
            assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("", "error")
        else:
            assert (output.error, output.outputs[0].text) == (None, good)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [("", "the prompt is empty"), ({"prompt_token_ids": [-1]}, "-1; a token id"), ({}, "it must be text, ")],
)
def test_a_single_bad_prompt_raises(llm: LLM, prompt: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm.generate(prompt, greedy(5))


def test_a_prompt_whose_filter_cannot_be_made_does_not_stop_the_others(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> Recorder:
        if next(numbers) == 1:
            raise RuntimeError("no guard is free")
        return Recorder()

    numbers = itertools.count()
    monkeypatch.setattr(llm.engine._intake, "_output_filter", make)
    outputs = llm.generate(["Once", "upon", "a"], greedy(2))
    assert [output.error is not None for output in outputs] == [False, True, False]


def test_the_longest_length_is_told(llm: LLM) -> None:
    assert llm.max_model_len == 128


def test_parameters_are_one_for_all_or_one_for_each(llm: LLM) -> None:
    with pytest.raises(ValueError, match="3 prompts and 2 sampling_params"):
        llm.generate(["a", "b", "c"], [greedy(1)] * 2)
    assert llm.generate([], greedy(1)) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda llm: llm.generate(None), "prompts is None; it must be a prompt or a list"),
        (lambda llm: llm.generate(b"abc"), "prompts is b'abc'"),
        (lambda llm: llm.stream(x for x in "ab"), "prompts is <generator"),
        (lambda llm: llm.generate("a", 5), "sampling_params is 5"),
        (lambda llm: llm.generate("a", SamplingParams), "sampling_params is <class"),
        (lambda llm: llm.chat("hi"), "messages is 'hi'"),
        (lambda llm: llm.chat({"role": "user", "content": "hi"}), "messages is {"),
    ],
)
def test_a_call_that_is_no_list_of_prompts_is_refused(llm: LLM, call: Callable, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(llm)


def test_metrics_tell_when_things_happened(llm: LLM) -> None:
    [output] = llm.generate("Once upon a time", greedy(10))
    metrics = output.metrics
    assert metrics.arrival_time <= metrics.first_scheduled_time <= metrics.first_token_time <= metrics.finished_time
    assert metrics.num_generated_tokens == 10
    assert metrics.ttft == metrics.first_token_time - metrics.arrival_time
    assert metrics.tpot == pytest.approx((metrics.finished_time - metrics.first_token_time) / 9)


@pytest.mark.parametrize("form", ["prompt", "prompt_token_ids", "messages"])
def test_a_salt_keeps_the_pages_of_equal_prompts_apart(llm: LLM, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm.tokenizer, "chat_template", "{{ messages[0].content }}")
    text = f"{form} was the word that Lily did not know, so she asked her mom, who did not know it."
    given = {
        "prompt": text,
        "prompt_token_ids": llm.tokenizer.encode(text),
        "messages": [{"role": "user", "content": text}],
    }
    plain, salted, other = ({form: given[form]} | salt for salt in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}))
    usages = [llm.generate(prompt, greedy(2))[0].usage for prompt in (plain, salted, salted, other, plain)]
    num_tokens = usages[0].prompt_tokens
    assert num_tokens == len(llm.tokenizer.encode(text, add_special_tokens=form != "messages"))
    found = (num_tokens - 1) // 16 * 16
    assert found > 0
    assert [usage.cached_tokens for usage in usages] == [0, 0, found, 0, found]
    assert [usage.completion_tokens for usage in usages] == [2] * 5


def test_a_key_that_a_prompt_does_not_have_is_named(llm: LLM) -> None:
    """A salt that is misspelled would keep nobody apart."""
    allowed = "prompt, prompt_token_ids, messages, tools, chat_template_kwargs, safe_prompt, cache_salt"
    with pytest.raises(ValueError, match=f"a prompt has the key 'cache_sallt'; it may have {allowed}"):
        llm.generate({"prompt": "Lily", "cache_sallt": "a"})


def test_a_stream_whose_outputs_another_one_lost_says_so(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may come between the engine's handing out of outputs and their way to those who wait for them."""
    waiting, consumed = (llm.stream("Lily", greedy(3)) for _ in range(2))
    next(waiting)
    step = llm.engine.step

    def interrupted() -> list:
        step()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(llm.engine, "step", interrupted)
        while llm.engine.has_unfinished:
            with pytest.raises(KeyboardInterrupt):
                next(consumed)
            consumed = llm.stream("Lily", greedy(3)) if llm.engine.has_unfinished else consumed
    with pytest.raises(RuntimeError, match="were lost when another one was interrupted"):
        list(waiting)
    assert text_of(llm, "Lily", greedy(3))


def test_a_stream_tells_the_usage_so_far(llm: LLM) -> None:
    usages = [output.usage for output in llm.stream("Once upon a time", greedy(5))]
    assert [usage.completion_tokens for usage in usages] == [1, 2, 3, 4, 5]
    assert {usage.prompt_tokens for usage in usages} == {len(llm.tokenizer.encode("Once upon a time"))}


def test_a_caller_may_change_what_it_was_handed(llm: LLM) -> None:
    expected = text_of(llm, "Once upon a time", greedy(12))
    for output in llm.stream("Once upon a time", greedy(12)):
        output.prompt_token_ids.append(7)
        output.outputs[0].token_ids.clear()
    assert output.outputs[0].text == expected


def test_an_interrupt_loses_nothing(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while one request's text is made: the tokens of its neighbour must come once, in order."""
    expected = text_of(llm, "Once upon a time", greedy(20))
    stream = llm.stream("Once upon a time", greedy(20))
    text = next(stream).outputs[0].delta

    def interrupt(index: int, output: object) -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            llm.generate(["Lily"], greedy(2), on_finish=interrupt)
    output_of, calls = llm.engine._output, itertools.count()

    def interrupted_once(tracked: object) -> object:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return output_of(tracked)

    monkeypatch.setattr(llm.engine, "_output", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["Lily", "Tom"], greedy(3))
    assert text + "".join(output.outputs[0].delta for output in stream) == expected


def test_a_model_that_is_open_is_not_opened_again(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Built(Exception):
        pass

    def build(loaded: object, **settings: object) -> None:
        raise Built(loaded)

    opened = open_model(shared_data / "stories260K-hf")
    monkeypatch.setattr("jaxinfer.llm.open_model", None)
    monkeypatch.setattr("jaxinfer.llm.build_engine", build)
    with pytest.raises(Built) as caught:
        LLM(opened)
    assert caught.value.args == (opened,)
    with pytest.raises(ValueError, match="load_format is 'random', and the model is open already"):
        LLM(opened, load_format="random")


def test_a_preset_with_random_weights_in_int4_takes_ids_only(monkeypatch: pytest.MonkeyPatch) -> None:
    preset = PRESETS["smollm2-135m"]
    # All 30 layers would only take longer to compile.
    monkeypatch.setitem(PRESETS, "smollm2-135m", replace(preset, num_layers=2, windows=preset.windows[:2]))
    limits = {"max_num_seqs": 1, "max_chunk_tokens": 16, "max_model_len": 64, "num_kv_pages": 8}
    with one_program():
        llm = LLM("smollm2-135m", load_format="random", quantization="int4", **limits)
    assert num_of_dtype(llm, "uint8") == 4 * llm.model_config.num_layers
    [output] = llm.generate({"prompt_token_ids": [1, 2, 3]}, greedy(4))
    assert len(output.outputs[0].token_ids) == 4
    assert output.outputs[0].text == ""
    with pytest.raises(ValueError, match="no tokenizer"):
        llm.generate("text", greedy(1))


def test_options_of_the_weights_the_cache_and_a_filter_reach_the_engine(shared_data: Path) -> None:
    """A model and its cache in int8, with pages of 8 tokens, 12 of them: it answers, loudly, and shares nothing."""
    limits = {"max_num_seqs": 1, "max_chunk_tokens": 16, "max_model_len": 64, "num_kv_pages": 12, "page_size": 8}
    options = {
        "quantization": "int8",
        "kv_dtype": "int8",
        "cache": "contiguous",
        "prefix_cache": False,
        "output_filter": _Loud,
    }
    with one_program():
        llm = LLM(shared_data / "stories260K-hf", **options, **limits)
    assert num_of_dtype(llm, "int8") == 4 * llm.model_config.num_layers
    layers = llm.engine._runner._kv_cache.layers
    assert {layer.pages.dtype.name for layer in layers} == {"int8"}
    assert {layer.pages.shape[:2] for layer in layers} == {(13, 8)}
    config = llm.engine._config
    assert (config.cache, config.prefix_cache, config.page_size) == ("contiguous", False, 8)
    [output] = llm.generate("Once upon a time", greedy(12))
    story = (shared_data / "stories260K-greedy-200.txt").read_text()
    assert story.upper().startswith("ONCE UPON A TIME" + output.outputs[0].text)
    assert not story.startswith("Once upon a time" + output.outputs[0].text)


class _Loud:
    """An ``OutputFilter`` that holds nothing back."""

    def push(self, text: str) -> FilteredText:
        return FilteredText(text.upper())

    def settle(self) -> FilteredText:
        return FilteredText("")


def num_of_dtype(llm: LLM, dtype: str) -> int:
    return sum(weight.dtype == dtype for weight in llm.engine._runner.programs.weights)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "float16"}, "dtype is 'float16'"),
        ({"quantization": "awq"}, "quantization is 'awq'"),
        ({"quantization": "int4", "group_size": 16}, "group_size is 16"),
        ({"max_model_len": 513}, "max_model_len is 513; this model takes at most 512"),
        ({"max_model_len": 0}, "max_model_len is 0"),
        ({"num_kv_pages": 0}, "num_kv_pages is 0"),
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"page_size": 0}, "page_size is 0"),
        ({"kv_dtype": "fp8"}, "kv_dtype is 'fp8'; it must be 'auto' or 'int8'"),
        ({"memory_fraction": 0}, "memory_fraction is 0; it must be a number in"),
        ({"memory_fraction": 1e-9}, "there is room for 0 bytes of KV cache beside the weights"),
        ({"cache": "ring"}, "cache is 'ring'; it must be 'paged' or 'contiguous'"),
        ({"prefix_cache": None}, "prefix_cache is None; it must be True or False"),
        ({"max_chunk_tokens": 20}, "multiple of block_q"),
        ({"load_format": "random"}, "random weights need the name of a preset"),
        ({"load_format": "dummy"}, "load_format is 'dummy'"),
        ({"output_filter": _Loud()}, "output_filter is <.*>; it must be a function, or a class, that"),
    ],
)
def test_bad_limits_are_refused_with_the_value(shared_data: Path, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LLM(shared_data / "stories260K-hf", **arguments)
