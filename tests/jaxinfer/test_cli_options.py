"""Every option of ``chat`` and ``generate`` arrives where it is used."""

import shlex
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from jaxinfer.cli import app
from jaxinfer.sampling_params import SamplingParams
from tests.conversations import FakeLLM, FakeTokenizer

SAMPLING = shlex.split("""
    --max-tokens 7 --min-tokens 2 --temperature 0.5 --top-k 3 --top-p 0.9 --min-p 0.1 --seed 5 --ignore-eos
    --stop-token-id 8 --stop-token-id 9
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
)
ENGINE = shlex.split("""
    --model some-model --dtype float32 --quantization int4 --group-size 32 --kernels pallas --kv-dtype int8
    --max-model-len 64 --num-kv-pages 9 --memory-fraction 0.5 --page-size 8 --no-prefix-cache
""")
SETTINGS = {
    "dtype": "float32",
    "quantization": "int4",
    "group_size": 32,
    "kernels": "pallas",
    "kv_dtype": "int8",
    "max_model_len": 64,
    "num_kv_pages": 9,
    "memory_fraction": 0.5,
    "page_size": 8,
    "prefix_cache": False,
}
CONVERSATION = ["--system", "Be brief.", "--chat-template-kwargs", '{"mood": "calm"}']
PROMPT = {
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
    "chat_template_kwargs": {"mood": "calm"},
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
        super().__init__(model=model, load_format=load_format, tokenizer=FakeTokenizer())


def options_of(command):
    return {param.opts[0] for param in typer.main.get_command(app).commands[command].params} - {"--help"}


def test_those_of_chat(run):
    arguments = [*CONVERSATION, *SAMPLING, *ENGINE]
    assert options_of("chat") == {word for word in arguments if word.startswith("--")}, "an option without a test"
    llm, made = run("chat", *arguments, stdin="Hello\n")
    opened = made.pop("opened")
    assert (opened.model, opened.load_format) == ("some-model", "auto")
    assert made == SETTINGS | {"max_num_seqs": 1}
    assert llm.params == PARAMS
    assert llm.prompts == [PROMPT]


def test_those_of_generate(run):
    of_generate = shlex.split("--chat --prompt Hello --cache contiguous --max-num-seqs 3 --load-format random")
    arguments = [*CONVERSATION, *SAMPLING, *ENGINE, *of_generate]
    tested = {word for word in arguments if word.startswith("--")}
    assert options_of("generate") - tested == {"--prompts-file", "--token-ids", "--json"}, "an option without a test"
    llm, made = run("generate", *arguments)
    opened = made.pop("opened")
    assert (opened.model, opened.load_format) == ("some-model", "random")
    assert made == SETTINGS | {"max_num_seqs": 3, "cache": "contiguous"}
    assert llm.params == PARAMS
    assert llm.prompts == [PROMPT]
