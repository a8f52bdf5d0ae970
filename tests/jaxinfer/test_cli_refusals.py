"""What the command line refuses before any weight is read, in one line."""

import pytest

from jaxinfer.kernel_self_test import KernelSelfTestError
from tests.command_line import jaxinfer

RANDOM = ["--load-format", "random"]
"""A model that needs no file."""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--temperature", "-1"], "temperature is -1.0"),
        (["--temperature", "nan"], "temperature is nan"),
        (["--top-p", "0"], "top_p is 0.0"),
        (["--min-p", "1.5"], "min_p is 1.5"),
        (["--top-k", "-2"], "top_k is -2"),
        (["--max-tokens", "-1"], "max_tokens is -1"),
        (["--min-tokens", "200"], "max_tokens, which is 128"),
        (["--seed", "-1"], "seed is -1"),
        (["--stop-token-id", "-5"], "-5"),
        (["--model", "no/such/model.gguf"], "'no/such/model.gguf'"),
        (["--load-format", "warm"], "'warm'"),
        (["--kernels", "triton"], "kernels is 'triton'; it must be 'auto', 'xla' or 'pallas'"),
        (["--quantization", "int3"], "quantization is 'int3'; it must be 'auto', 'stored', 'none', 'int8' or 'int4'"),
        (["--quantization", "int4", "--group-size", "48"], "group_size is 48; it must be 32, 64, 128, or 0"),
        (["--group-size", "64"], "group_size is 64, and only quantization 'int4' has groups"),
        (["--kv-dtype", "fp8", *RANDOM], "kv_dtype is 'fp8'; it must be 'auto' or 'int8'"),
        (["--memory-fraction", "1.5", *RANDOM], "memory_fraction is 1.5; it must be a number in (0, 1]"),
        (["--memory-fraction", "nan", *RANDOM], "memory_fraction is nan; it must be a number in (0, 1]"),
        (["--page-size", "0", *RANDOM], "page_size is 0; it must be a whole number in [1, 65536]"),
        (["--cache", "ring", *RANDOM], "cache is 'ring'; it must be 'paged' or 'contiguous'"),
        (["--num-kv-pages", "0", *RANDOM], "num_kv_pages is 0"),
        (["--chat", "--token-ids"], "--token-ids"),
        (["--system", "Be brief."], "--system"),
        (["--chat-template-kwargs", "{}"], "--chat-template-kwargs goes with --chat"),
        (["--chat", "--chat-template-kwargs", "{a"], "'{a'"),
        (["--chat", "--chat-template-kwargs", "[1]"], "'[1]'"),
        (["--chat", "--chat-template-kwargs", '{"a": NaN}'], "NaN is no JSON"),
        (["--safe-prompt"], "--safe-prompt goes with --chat"),
        (["--stop", ""], "stop has ''"),
        (["--bad-word", ""], "bad_words has ''"),
        (["--n", "0"], "n is 0"),
        (["--n", "3", "--best-of", "2"], "best_of is 2"),
        (["--logprobs", "21", "--json"], "logprobs is 21"),
        (["--logprobs", "1"], "--logprobs goes with --json"),
        (["--prompt-logprobs", "0"], "--prompt-logprobs goes with --json"),
        (["--presence-penalty", "3"], "presence_penalty is 3.0"),
        (["--frequency-penalty", "-3"], "frequency_penalty is -3.0"),
        (["--repetition-penalty", "0"], "repetition_penalty is 0.0"),
        (["--allowed-token-id", "-1"], "-1"),
        (["--logit-bias", "5"], "--logit-bias is '5'; it must be a JSON object"),
        (["--logit-bias", '{"a": 1}'], "a key of logit_bias is 'a'"),
        (["--logit-bias", '{"1_0": 1}'], "a key of logit_bias is '1_0'"),
        (["--logit-bias", '{"5": 101}'], "logit_bias[5] is 101"),
        (["--logit-bias", '{"5": NaN}'], "NaN is no JSON"),
        (["--json-object", "--regex", "a"], "exactly one of json, json_object, regex, choice, grammar"),
        (["--choice", ""], "choice is [''"),
        (["--grammar", "@"], "--grammar is '@'; the name of a file follows it"),
        (["--json-schema", "@no/such"], "the file no/such of --json-schema cannot be read: No such file"),
        (["--json-schema", "{a", *RANDOM], "structured_outputs with json '{a' cannot be held"),
        (["--json-schema", "false", *RANDOM], "allows nothing"),
        (["--regex", "(", *RANDOM], "structured_outputs with regex '(' cannot be held"),
        (["--prompts-file", "-"], "--prompts-file"),
        (["--prompts-file", ""], "--prompts-file"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_code_2(arguments, named):
    result = jaxinfer("generate", "--prompt", "Hello", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert named in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["info"], ["generate", "--prompt", "Hello", "--model"]])
def test_a_foreign_file_is_named(command, tmp_path):
    file = tmp_path / "notes.gguf"
    file.write_text("This is no model, though it is long enough to hold a header.")
    result = jaxinfer(*command, file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {file}: ")
    assert result.stderr.count("\n") == 1


def test_a_gpu_kernel_that_fails_its_test_is_one_line_and_exit_code_4(monkeypatch):
    def fail(*arguments, **options):
        raise KernelSelfTestError("the GPU kernel for something computes wrong values")

    monkeypatch.setattr("jaxinfer.llm.build_engine", fail)
    result = jaxinfer("generate", "--prompt", "1", "--token-ids", "--load-format", "random")
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == "error: the GPU kernel for something computes wrong values\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"kv_dtype": "auto", "prefix_cache": True, "cache": "paged", "page_size": 16, "memory_fraction": None}),
        (["--kv-dtype", "int8"], {"kv_dtype": "int8"}),
        (["--memory-fraction", "0.25"], {"memory_fraction": 0.25}),
        (["--page-size", "8"], {"page_size": 8}),
        (["--no-prefix-cache"], {"prefix_cache": False}),
        (["--cache", "contiguous"], {"cache": "contiguous"}),
        (["--num-kv-pages", "9"], {"num_kv_pages": 9}),
    ],
)
def test_options_of_the_cache_are_passed_on(monkeypatch, arguments, expected):
    found = {}

    def build(loaded, **settings):
        found.update(settings)
        raise ValueError("that will do")

    monkeypatch.setattr("jaxinfer.llm.build_engine", build)
    result = jaxinfer("generate", "--prompt", "1", "--token-ids", *RANDOM, *arguments)
    assert result.stderr == "error: that will do\n"
    assert {name: found[name] for name in expected} == expected


def test_an_unknown_option_and_a_word_for_a_number_have_exit_code_2():
    assert jaxinfer("generate", "--no-such-option").exit_code == 2
    assert jaxinfer("generate", "--prompt", "Hello", "--max-tokens", "many").exit_code == 2


def test_generate_without_a_prompt_says_how_to_give_one():
    result = jaxinfer("generate")
    assert result.exit_code == 2
    assert "--prompts-file" in result.stderr


def test_an_empty_single_prompt_is_refused_before_the_model_is_loaded():
    result = jaxinfer("generate", "--model", "/nowhere", "--prompt", "")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: prompt 1: the prompt is empty; at least one token is needed\n"
