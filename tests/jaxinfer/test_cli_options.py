"""Every option of ``chat`` and ``generate`` arrives where it is used."""

import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from jaxinfer.cli import app
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from tests.conversations import FakeLLM, FakeTokenizer

SAMPLING = shlex.split("""
    --max-tokens 7 --min-tokens 2 --temperature 0.5 --top-k 3 --top-p 0.9 --min-p 0.1 --seed 5 --ignore-eos
    --stop-token-id 8 --stop-token-id 9 --stop END --stop '\\n\\n' --include-stop-str-in-output
    --presence-penalty 0.25 --frequency-penalty -0.5 --repetition-penalty 1.5 --logit-bias '{"11": -5, "12": 0.5}'
    --bad-word dog --bad-word ' cat' --allowed-token-id 7 --allowed-token-id 8
""")
PARAMS = SamplingParams(
    temperature=0.5,
    top_k=3,
    top_p=0.9,
    min_p=0.1,
    seed=5,
    max_tokens=7,
    min_tokens=2,
    ignore_eos=True,
    stop_token_ids=[8, 9],
    stop=["END", "\\n\\n"],
    include_stop_str_in_output=True,
    presence_penalty=0.25,
    frequency_penalty=-0.5,
    repetition_penalty=1.5,
    logit_bias={11: -5, 12: 0.5},
    bad_words=["dog", " cat"],
    allowed_token_ids=[7, 8],
)
FORMS = {
    "--json-schema '{}'": {"json": "{}"},
    "--json-object": {"json_object": True},
    "--regex '[ab]+'": {"regex": "[ab]+"},
    "--choice yes --choice '@ no'": {"choice": ["yes", "@ no"]},
    "--grammar 'start: \"a\"'": {"grammar": 'start: "a"'},
}
"""The options that exclude one another."""
ENGINE = shlex.split("""
    --model some-model --dtype float32 --quantization int4 --group-size 32 --kernels pallas --kv-dtype int8
    --max-model-len 64 --num-kv-pages 9 --memory-fraction 0.5 --page-size 8 --no-prefix-cache --quantize-embeddings
""")
SETTINGS = {
    "dtype": "float32",
    "quantization": "int4",
    "group_size": 32,
    "quantize_embeddings": True,
    "kernels": "pallas",
    "kv_dtype": "int8",
    "max_model_len": 64,
    "num_kv_pages": 9,
    "memory_fraction": 0.5,
    "page_size": 8,
    "prefix_cache": False,
}
CONVERSATION = ["--safe-prompt", "--system", "Be brief.", "--chat-template-kwargs", '{"mood": "calm"}']
PROMPT = {
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
    "chat_template_kwargs": {"mood": "calm"},
    "safe_prompt": True,
}


@pytest.fixture
def run(monkeypatch):
    """Runs a command over a made-up model; returns that and what it was made with."""
    llm, made = FakeLLM(["a"]), {}

    def make(opened, *, progress, **settings):
        made.update(settings, opened=opened)
        return llm

    monkeypatch.setattr("jaxinfer.llm.LLM", make)
    monkeypatch.setattr("jaxinfer.loading.open_model", lambda *given, **more: Opened(*given, **more))

    def run(*arguments, stdin=""):
        result = CliRunner().invoke(app, [*arguments], input=stdin)
        assert result.exit_code == 0, result.output
        return llm, made

    return run


class Opened(SimpleNamespace):
    """What ``open_model`` is asked for."""

    def __init__(self, model, *, load_format):
        config = SimpleNamespace(vocab_size=512)
        super().__init__(model=model, load_format=load_format, tokenizer=FakeTokenizer(), config=config)


def options_of(command):
    return {param.opts[0] for param in typer.main.get_command(app).commands[command].params} - {"--help"}


def options_in(*arguments):
    return {word for word in [*arguments, *shlex.split(" ".join(FORMS))] if word.startswith("--")}


def test_those_of_chat(run):
    arguments = [*CONVERSATION, *SAMPLING, *ENGINE]
    assert options_of("chat") == options_in(*arguments), "an option without a test"
    llm, made = run("chat", *arguments, stdin="Hello\n")
    opened = made.pop("opened")
    assert (opened.model, opened.load_format) == ("some-model", "auto")
    assert made == SETTINGS | {"max_num_seqs": 1}
    assert llm.params == PARAMS
    assert llm.prompts == [PROMPT]


def test_those_of_generate(run):
    of_generate = shlex.split("""
        --chat --prompt Hello --cache contiguous --max-num-seqs 3 --load-format random
        --n 2 --best-of 3 --logprobs 4 --prompt-logprobs 5 --json
    """)
    arguments = [*CONVERSATION, *SAMPLING, *ENGINE, *of_generate]
    untested = options_of("generate") - options_in(*arguments)
    assert untested == {"--prompts-file", "--token-ids"}, "an option without a test"
    llm, made = run("generate", *arguments)
    opened = made.pop("opened")
    assert (opened.model, opened.load_format) == ("some-model", "random")
    assert made == SETTINGS | {"max_num_seqs": 3, "cache": "contiguous"}
    assert llm.params == replace(PARAMS, n=2, best_of=3, logprobs=4, prompt_logprobs=5)
    assert llm.prompts == [PROMPT]


def test_without_options_all_is_as_in_python(run):
    llm, _ = run("chat", stdin="Hello\n")
    assert llm.params == SamplingParams(max_tokens=None)
    assert llm.prompts == [{"messages": [{"role": "user", "content": "Hello"}]}]


@pytest.mark.parametrize("command", ["chat", "generate"])
@pytest.mark.parametrize(("options", "form"), FORMS.items())
def test_the_form_of_the_answer(run, command, options, form):
    prompt = ["--prompt", "Hello"] if command == "generate" else []
    llm, _ = run(command, *prompt, *shlex.split(options), stdin="Hello\n")
    assert llm.params.structured_outputs == StructuredOutputsParams(**form)


@pytest.mark.parametrize(
    ("option", "name", "form"),
    [("--json-schema", "json", '{"const": "\u00e9"}\n'), ("--grammar", "grammar", 'start: "\u00e9"\n')],
)
def test_a_form_can_be_in_a_file(run, option, name, form, tmp_path):
    file = tmp_path / "form"
    file.write_bytes(f"\ufeff{form}".encode())  # with the mark with which Windows begins a UTF-8 file
    llm, _ = run("chat", option, f"@{file}", stdin="Hello\n")
    assert llm.params.structured_outputs == StructuredOutputsParams(**{name: form})


def test_as_many_sequences_run_together_as_are_asked_for(run):
    for options, expected in (("", 2), ("--n 3", 6), ("--best-of 4", 8), ("--n 40", 32)):
        _, made = run("generate", "--prompt", "a", "--prompt", "b", *shlex.split(options))
        assert made["max_num_seqs"] == expected
