"""``jaxinfer models``, and what ``jaxinfer info`` says in words where the numbers would be many."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from checkpoints import PRESETS
from jaxinfer.cli import app
from tests.reference import FIXTURES


def run(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_models_lists_every_preset_in_aligned_columns():
    heading, *lines = run("models").splitlines()
    assert [line.split()[0] for line in lines] == list(PRESETS)
    for column in ("parameters", "context", "GiB", "KV bytes/token"):
        end = heading.index(column) + len(column)
        assert all(line[end - 1].isdigit() and line[end : end + 1] in ("", " ") for line in lines), column


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_folder_of_a_presets_name_changes_nothing(form, tmp_path, monkeypatch):
    listed = run("models", *form)
    (tmp_path / "mistral-7b-v0.1").mkdir()
    (tmp_path / "smollm2-135m").symlink_to(FIXTURES / "tiny_mistral")
    monkeypatch.chdir(tmp_path)
    assert run("models", *form) == listed
    assert json.loads(run("info", "smollm2-135m", "--json"))["layout"] == "huggingface"  # as `generate` finds it


def test_models_says_what_each_takes():
    """Ministral 8B's parameters and Llama 2's K and V: 2 x 32 layers x 32 heads x 128 numbers of 2 bytes."""
    lines = {line.split()[0]: " ".join(line.split()) for line in run("models").splitlines()}
    ministral = "ministral-8b 8,019,808,256 36 32 / 8 128 32768 in 27 of 36 layers 131,072 14.94 147,456"
    assert lines["ministral-8b"] == ministral
    assert lines["llama-2-7b"] == "llama-2-7b 6,738,415,616 32 32 / 32 128 none 4,096 12.55 524,288"
    assert "4096 in every layer" in lines["mistral-7b-v0.1"]


def test_the_page_on_models_shows_the_list():
    page = Path(__file__).parents[2] / "docs" / "models.md"
    assert f"$ jaxinfer models\n{run('models')}```" in page.read_text(encoding="utf-8")


def test_models_as_json_is_what_info_gives_for_each():
    found = [json.loads(line) for line in run("models", "--json").splitlines()]
    assert [each["model"] for each in found] == list(PRESETS)
    for each in found[::7]:
        assert each == json.loads(run("info", each["model"], "--json"))
    scaled = next(each for each in found if each["model"] == "llama-3.1-8b")
    assert len(scaled["config"]["rope_scaling"]["divisors"]) == 64


@pytest.mark.parametrize(
    ("model", "name", "words"),
    [
        ("llama-3-8b", "rope_scaling", "none"),
        ("llama-3.2-1b", "rope_scaling", "frequencies divided by 1 to 32"),
        (FIXTURES / "tiny_llama_linear", "rope_scaling", "frequencies divided by 4"),
        (FIXTURES / "tiny_qwen2_yarn", "rope_scaling", "frequencies divided by 1 to 4, cosine and sine times 1.139"),
        (FIXTURES / "tiny_qwen2", "windows", "8 in 2 of 3 layers"),
        (FIXTURES / "tiny_mistral", "windows", "8 in every layer"),
        ("qwen3-8b", "windows", "none"),
    ],
)
def test_info_in_words(model, name, words):
    lines = run("info", model).splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith(name + " ")] == [words]
