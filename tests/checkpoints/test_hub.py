"""Models of the hub: the cache first, then the hub, which is one on localhost here."""

import threading
import time

import pytest
from huggingface_hub import constants

from checkpoints import locate, open_checkpoint
from checkpoints.hub import HubId
from tests.checkpoints import writers
from tests.checkpoints.fake_hub import COMMIT, FakeHub, running, use
from tests.checkpoints.writers import known_weights

SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    """One model in each layout, with the files that such repositories have beside it."""
    root, weights = tmp_path_factory.mktemp("layouts"), known_weights()
    hf = writers.write_hf(root / "hf", writers.hf_tensors(weights))
    shards = writers.write_hf_shards(root / "shards", writers.hf_tensors(weights))
    mistral = writers.write_mistral(root / "mistral", writers.mistral_tensors(weights))
    for folder, names in (
        (hf, ["tokenizer.json", "README.md", "original/params.json", "onnx/model.safetensors", "pytorch_model.bin"]),
        (shards, ["tokenizer.model"]),
        (mistral, ["tekken.json", "tokenizer.model.v3"]),
    ):
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(name.encode())
    (root / "gguf" / "sub").mkdir(parents=True)
    for name in ("small.gguf", "sub/other.gguf"):
        writers.write_gguf(root / "gguf" / name, writers.gguf_tensors(weights))
    return root


@pytest.fixture
def hub(layouts, monkeypatch):
    hub = FakeHub()
    for name in ("hf", "shards", "mistral", "gguf"):
        hub.add(f"owner/{name}", layouts / name)
    hub.add("owner/both", layouts / "hf", layouts / "mistral")
    with running(hub) as address:
        use(monkeypatch, address)
        yield hub


@pytest.fixture
def find(tmp_path):
    return lambda typed: locate(typed, cache_dir=tmp_path)


@pytest.fixture
def offline(monkeypatch):
    """From the call on, as with HF_HUB_OFFLINE=1."""
    return lambda: monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def fault_of(find, typed):
    with pytest.raises(ValueError, match=typed) as caught:
        find(typed)
    return str(caught.value)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("owner/name", HubId("owner/name")),
        ("mistralai/Mistral-7B-v0.1", HubId("mistralai/Mistral-7B-v0.1")),
        ("owner/name-GGUF@refs/pr/3", HubId("owner/name-GGUF", "refs/pr/3")),
        ("owner/name:a/b c.gguf", HubId("owner/name", None, "a/b c.gguf")),
        (f"owner/name@{COMMIT}:m.gguf", HubId("owner/name", COMMIT, "m.gguf")),
    ],
)
def test_ids_and_what_they_stand_for(typed, expected):
    assert HubId.parse(typed) == expected
    assert str(expected) == typed


@pytest.mark.parametrize(
    "typed",
    [
        "name",
        "a/b/c",
        "./b",
        "a/m.gguf",
        "a/b:Q4_K_M",
        "a/b:",
        "a/b@",
        "-a/b",
        "/a/b",
        "a/b\n",
        "a/b:../m.gguf",
        "a/b:/m.gguf",
    ],
)
def test_what_is_no_id(typed):
    assert HubId.parse(typed) is None


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("hf", ["config.json", "model.safetensors", "tokenizer.json"]),
        ("mistral", ["consolidated.safetensors", "params.json", "tekken.json", "tokenizer.model.v3"]),
        # Only one of the two layouts, which hold the same weights.
        (
            "both",
            ["config.json", "model.safetensors", "params.json", "tekken.json", "tokenizer.json", "tokenizer.model.v3"],
        ),
    ],
)
def test_what_is_read_is_downloaded_and_then_the_network_is_left_alone(hub, find, name, files):
    folder = find(f"owner/{name}")
    assert sorted(hub.downloaded) == files
    assert open_checkpoint(folder).config == writers.CONFIG
    num_requests = hub.num_requests
    assert find(f"owner/{name}") == folder
    assert hub.num_requests == num_requests


@pytest.mark.parametrize("file", ["small.gguf", "sub/other.gguf"])
def test_one_gguf_file_of_several(hub, find, offline, file):
    path = find(f"owner/gguf:{file}")
    assert hub.downloaded == [file]
    assert open_checkpoint(path).config == writers.CONFIG
    offline()
    assert find(f"owner/gguf:{file}") == path


def test_a_revision_is_another_model_in_the_cache(hub, find, offline):
    hub.revisions = ("main", "v1")
    find("owner/hf@v1")
    offline()
    find("owner/hf@v1")
    find(f"owner/hf@{COMMIT}")
    assert "HF_HUB_OFFLINE" in fault_of(find, "owner/hf")


@pytest.fixture
def write_cache(hub, tmp_path):
    """Writes a model into the cache by its documented layout, without the list of files that a new hub keeps there."""

    def write(repo_id, absent=None):
        repository = tmp_path / f"models--{repo_id.replace('/', '--')}"
        snapshot = repository / "snapshots" / COMMIT
        for folder in (snapshot, repository / "refs"):
            folder.mkdir(parents=True)
        (repository / "refs" / "main").write_text(COMMIT)
        for name, content in hub.repositories[repo_id].items():
            if name != absent and "/" not in name:
                (snapshot / name).write_bytes(content)
        return snapshot

    return write


def test_a_cache_that_others_wrote_is_enough(hub, find, write_cache):
    snapshot = write_cache("owner/hf")
    assert find("owner/hf").samefile(snapshot)
    assert hub.num_requests == 0


@pytest.mark.parametrize("absent", ["config.json", SHARD, "tokenizer.model"])
def test_a_part_in_a_cache_that_others_wrote_is_completed_or_refused_by_name(
    hub, find, write_cache, monkeypatch, absent
):
    snapshot = write_cache("owner/shards", absent)
    with monkeypatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        fault = fault_of(find, "owner/shards")
    assert ("no tokenizer" if absent == "tokenizer.model" else absent) in fault
    assert find("owner/shards").samefile(snapshot)
    assert hub.downloaded == [absent]


@pytest.mark.parametrize("absent", [SHARD, "tokenizer.model"])
def test_what_is_lost_of_a_download_is_completed_or_refused_by_name(hub, find, monkeypatch, absent):
    folder = find("owner/shards")
    (folder / absent).resolve().unlink()
    (folder / absent).unlink()
    hub.downloaded.clear()
    with monkeypatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert absent in fault_of(find, "owner/shards")
    assert find("owner/shards") == folder
    assert hub.downloaded == [absent]


def test_a_download_that_breaks_off_says_so_and_goes_on_at_the_next_call(hub, find, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the hub waits before each of its trials
    hub.broken = (SHARD,)
    assert "try again" in fault_of(find, "owner/shards")
    hub.broken = ()
    hub.downloaded.clear()
    assert open_checkpoint(find("owner/shards")).config == writers.CONFIG
    assert hub.downloaded == [SHARD]


def test_no_network_and_no_cache_says_both_and_what_to_do(tmp_path, find, monkeypatch):
    use(monkeypatch, "http://127.0.0.1:9")  # the port where nobody listens
    fault = fault_of(find, "owner/name")
    assert f"in the cache, {tmp_path}: nothing of it" in fault
    assert "on the network, http://127.0.0.1:9: ConnectError" in fault
    assert "`hf download owner/name`" in fault


def test_offline_the_hub_is_not_asked(hub, find, offline):
    offline()
    fault = fault_of(find, "owner/hf")
    assert "not asked, since HF_HUB_OFFLINE is set" in fault
    assert hub.num_requests == 0


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (404, "RepoNotFound", ["there is no model owner/it", "private", "HF_TOKEN"]),
        (401, "RepoNotFound", ["there is no model owner/it", "private", "HF_TOKEN"]),
        (403, "GatedRepo", ["access is restricted", "/owner/it", "HF_TOKEN"]),
        (429, "", ["it answered", "429"]),
        (503, "", ["it answered", "503"]),
    ],
)
def test_a_hub_that_refuses_is_told_in_words_to_act_on(hub, find, status, code, words):
    hub.repositories["owner/it"] = hub.repositories["owner/hf"]
    hub.refusals["owner/it"] = (status, code)
    fault = fault_of(find, "owner/it")
    assert [word for word in words if word not in fault] == []
    assert len(fault.splitlines()) == 3


def test_a_revision_that_is_not_there_is_named(hub, find):
    assert "owner/hf has no revision 'v9'" in fault_of(find, "owner/hf@v9")


def test_a_file_that_is_not_there_is_answered_with_those_that_are(hub, find):
    assert "no x.gguf; its GGUF files: small.gguf, sub/other.gguf" in fault_of(find, "owner/gguf:x.gguf")


def test_a_repository_without_safetensors_says_what_it_has(hub, find):
    assert "a GGUF file is named as owner/gguf:small.gguf" in fault_of(find, "owner/gguf")
    hub.repositories["owner/old"] = {"config.json": b"{}", "pytorch_model.bin": b"x", "vocab.txt": b"x"}
    assert "the weights there are pytorch_model.bin" in fault_of(find, "owner/old")
    assert hub.downloaded == []


@pytest.mark.timeout(20)
def test_a_hub_that_is_silent_is_not_waited_for(hub, find, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.2)
    hub.released = threading.Event()
    assert "Timeout" in fault_of(find, "owner/hf")


def test_a_name_that_the_hub_does_not_allow_is_refused_in_its_words(hub, find):
    fault_of(find, "owner/a--b")
    assert hub.num_requests == 0
