"""``tokenizer.json``: who adds BOS, which token is EOS, and what is said when a file is wrong."""

import json
import re
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, processors

from jaxinfer.tokenizers import load_tokenizer
from tests.vocabularies import BYTE_LEVEL_TOKENS, write_byte_fallback_json, write_byte_level_json

HELLO = BYTE_LEVEL_TOKENS.index("hello")


@pytest.mark.parametrize("adds_bos", [True, False], ids=["post-processor adds", "post-processor does not"])
@pytest.mark.parametrize("says_add", [True, False, None], ids=["config adds", "config does not", "config is silent"])
def test_bos_comes_once(tmp_path, adds_bos, says_add):
    """Neither a false nor silence takes away what the post-processor adds: so it is in transformers 5.24."""
    config = {"bos_token": "<s>"} | ({} if says_add is None else {"add_bos_token": says_add})
    tokenizer = load_tokenizer(write_byte_fallback_json(tmp_path, decoder="sequence", adds_bos=adds_bos, **config))
    plain = tokenizer.encode("he", add_special_tokens=False)
    spelled = tokenizer.encode("<s>he", add_special_tokens=False)
    assert 1 not in plain
    assert spelled.count(1) == 1
    wanted = adds_bos or says_add
    assert tokenizer.encode("he") == ([1, *plain] if wanted else plain)
    assert tokenizer.encode("<s>he") == spelled
    assert tokenizer.encode("<s><s>he") == tokenizer.encode("<s><s>he", add_special_tokens=False)
    assert tokenizer.encode("") == ([1] if wanted else [])


def post_process(folder: Path, template: str) -> Path:
    """Give the byte-level vocabulary a post-processor: ``$A`` is the text."""
    inner = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    special = [("<s>", 0), ("</s>", 1), ("<tool>", 2)]
    inner.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    inner.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize(
    ("template", "bos"),
    [("<s> $A", 0), ("<s> $A </s>", 0), ("$A </s>", None), ("$A", None), ("<tool> $A", None)],
    ids=["BOS", "BOS and EOS", "EOS", "nothing", "a token that is text"],
)
def test_bos_of_a_lone_file_is_what_its_post_processor_puts_first(tmp_path, template, bos):
    folder = post_process(write_byte_level_json(tmp_path), template)
    (folder / "tokenizer_config.json").unlink()
    assert load_tokenizer(folder).bos_token_id == bos


def test_bos_of_a_lone_file_comes_once(tmp_path):
    folder = write_byte_fallback_json(tmp_path, decoder="sequence")
    (folder / "tokenizer_config.json").unlink()
    tokenizer = load_tokenizer(folder)
    plain = tokenizer.encode("he", add_special_tokens=False)
    assert tokenizer.encode("he") == [1, *plain]
    assert tokenizer.encode("<s>he") == tokenizer.encode("<s>he", add_special_tokens=False)
    assert tokenizer.encode("<s>he").count(1) == 1


def test_bos_of_a_side_file_comes_before_the_post_processors(tmp_path):
    assert load_tokenizer(post_process(write_byte_level_json(tmp_path, bos_token="</s>"), "<s> $A")).bos_token_id == 1


def test_padding_and_truncation_of_the_file_are_off(tmp_path):
    """transformers 5.24 encodes the whole text, and nothing but it, until it is asked for more."""
    folder = write_byte_level_json(tmp_path)
    inner = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    inner.enable_truncation(3)
    inner.enable_padding(length=8, direction="left", pad_id=1, pad_token="</s>")
    inner.save(str(folder / "tokenizer.json"))
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("hello" * 20) == [HELLO] * 20
    assert (tokenizer.encode(""), tokenizer.bos_token_id) == ([], None)


def test_eos_is_the_tokenizers_own(tmp_path):
    """Of the ends that the model's files list the tokenizer knows nothing: they are the checkpoint's to read."""
    folder = write_byte_level_json(tmp_path, eos_token={"content": "</s>", "lstrip": False})
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 1]}))
    (folder / "special_tokens_map.json").write_text('{"eos_token": "<s>"}')
    assert load_tokenizer(folder).eos_token_id == 1


def test_special_tokens_map_is_the_last_resort(tmp_path):
    folder = write_byte_level_json(tmp_path)
    assert load_tokenizer(folder).eos_token_id is None
    (folder / "special_tokens_map.json").write_text('{"eos_token": "</s>", "bos_token": {"content": "<s>"}}')
    assert (load_tokenizer(folder).eos_token_id, load_tokenizer(folder).bos_token_id) == (1, 0)


def test_chat_template_default_of_several(tmp_path):
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    assert load_tokenizer(write_byte_level_json(tmp_path, chat_template=named)).chat_template == "yes"


def test_special_tokens_are_no_text(tmp_path):
    tokenizer = load_tokenizer(write_byte_level_json(tmp_path))
    assert tokenizer.encode("</s>hello<tool>") == [1, HELLO, 2]
    assert tokenizer.decode([0, HELLO, 1, 2]) == "hello<tool>"
    assert tokenizer.token_text(1) == "</s>"


def test_tokenizer_json_comes_before_tokenizer_model(tmp_path):
    write_byte_level_json(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"never opened")
    assert load_tokenizer(tmp_path).encode("hello") == [HELLO]


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("tokenizer.json", "{", "tokenizer.json"),
        ("tokenizer.json", "{}", "tokenizer.json"),
        ("tokenizer_config.json", "[]", "object"),
        ("tokenizer_config.json", "{", "JSON"),
        ("tokenizer_config.json", '{"eos_token": 3}', "eos_token"),
        ("tokenizer_config.json", '{"eos_token": "<gone>"}', "<gone>"),
        ("tokenizer_config.json", '{"add_bos_token": "yes"}', "add_bos_token"),
        ("tokenizer_config.json", '{"chat_template": 3}', "chat_template"),
        ("tokenizer_config.json", '{"chat_template": [{"name": ["x"], "template": "a"}]}', "['x']"),
        ("tokenizer_config.json", '{"chat_template": ["a"]}', "'name'"),
        ("tokenizer_config.json", "[" * 200_000, "recursion"),
        ("special_tokens_map.json", "[" * 200_000, "recursion"),
    ],
    ids=lambda value: value if len(value) < 80 else "deep",
)
def test_a_wrong_file_is_named(tmp_path, name, content, word):
    folder = write_byte_level_json(tmp_path)
    (folder / name).write_text(content)
    with pytest.raises(ValueError) as caught:
        load_tokenizer(folder)
    assert word in str(caught.value)
    assert str(caught.value).count(str(tmp_path)) == 1


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"])
def test_a_side_file_that_cannot_be_opened_is_named(tmp_path, name):
    """Here it is a directory, which fails for every user; a file without permission is the same class of error."""
    folder = write_byte_level_json(tmp_path)
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    with pytest.raises(ValueError, match=f"{re.escape(str(folder / name))} cannot be read"):
        load_tokenizer(folder)


def test_a_byte_order_mark_is_no_part_of_a_side_file(tmp_path):
    folder = write_byte_level_json(tmp_path)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}', encoding="utf-8-sig")
    (folder / "special_tokens_map.json").write_text('{"bos_token": "<s>"}', encoding="utf-8-sig")
    (folder / "chat_template.jinja").write_text("words", encoding="utf-8-sig")
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.chat_template) == (1, 0, "words")


def test_an_unknown_decoder_is_named(tmp_path):
    inner = tokenizers.Tokenizer(models.WordLevel(vocab={"a": 0}, unk_token="a"))
    inner.decoder = decoders.WordPiece()
    inner.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"WordPiece.*ByteLevel"):
        load_tokenizer(tmp_path)


SPACES = decoders.Replace("\u2581", " ")


@pytest.mark.parametrize(
    "steps",
    [
        [SPACES, decoders.Fuse(), decoders.Strip(" ", 2, 0)],
        [SPACES, decoders.Fuse(), decoders.Strip("h", 1, 0)],
        [SPACES, decoders.Fuse(), decoders.Strip(" ", 1, 1)],
        [decoders.Replace("\u2581", "  ")],
        [decoders.Replace("h", " ")],
        [decoders.Replace(tokenizers.Regex("\u2581"), " ")],
    ],
    ids=["two spaces", "a letter", "at the end", "longer", "another letter", "an expression"],
)
def test_a_decoder_that_a_stream_cannot_follow_is_named(tmp_path, steps):
    folder = write_byte_fallback_json(tmp_path, decoder="sequence")
    inner = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    inner.decoder = decoders.Sequence(steps)
    inner.save(str(folder / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"tokenizer\.json: the tokenizer's decoder is .* known are"):
        load_tokenizer(folder)


def test_a_template_of_a_folder_is_its_own_on_bos(tmp_path):
    """As in transformers, whose ``apply_chat_template`` adds no special token. A GGUF is another matter."""
    for adds_bos in (True, False):
        config = {"bos_token": "<s>", "add_bos_token": True, "chat_template": "{{ messages[0].content }}"}
        write_byte_fallback_json(tmp_path, decoder="sequence", adds_bos=adds_bos, **config)
        tokenizer = load_tokenizer(tmp_path)
        for content, num_bos in (("he", 0), ("<s>he", 1)):
            ids = tokenizer.encode_chat([{"role": "user", "content": content}]).token_ids
            assert ids.count(1) == num_bos


def test_no_tokenizer_names_what_was_looked_for(tmp_path):
    for path in (tmp_path, tmp_path / "gone", tmp_path / "gone.gguf"):
        with pytest.raises(ValueError, match=r"tokenizer\.json.*tokenizer\.model.*\.gguf"):
            load_tokenizer(path)
