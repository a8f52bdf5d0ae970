"""Requests of the lengths in a file: one that has none is a fault that says where, and not a time of nothing."""

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

from jaxinfer.config import EngineConfig
from scripts.on_gpu import check, model
from scripts.on_gpu.settings import Settings

HEADER = "prompt_tokens,output_tokens\n"
CONFIG = EngineConfig(max_model_len=64, num_kv_pages=8)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "no line of lengths"),
        (HEADER, 1, "no line of lengths"),
        ("a,b\n1,2\n", 2, "no prompt_tokens"),
        (HEADER + "3,4\n5\n", 3, "no output_tokens"),
        (HEADER + "3,4\n5,many\n", 3, "output_tokens is 'many'"),
        (HEADER + "0,4\n", 2, "prompt_tokens is '0'"),
        (HEADER + "3,-1\n", 2, "output_tokens is '-1'"),
    ],
)
def test_a_file_without_lengths_is_a_fault(
    text: str, line: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = Path("lengths.csv")  # relative: the reason is cut, and the folder of a test is long
    monkeypatch.chdir(tmp_path)
    path.write_text(text)
    monkeypatch.setattr(model, "_runner", lambda *arguments: None)
    some_model = SimpleNamespace(formats={})
    row = model._served_row(some_model, CONFIG, done_future(), Settings(seconds=60, lengths=path))
    assert row.is_fault
    assert f"lengths.csv, line {line}: " in row.values["note"] and said in row.values["note"]


def done_future() -> Future[None]:
    future = Future[None]()
    future.set_result(None)
    return future


def test_a_missing_file_that_was_asked_for_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    missing = tmp_path / "none.csv"
    with pytest.raises(SystemExit) as ended:
        check.main(["--tiny", "--out", str(tmp_path / "out"), "--lengths", str(missing)])
    assert ended.value.code == 2
    assert f"there is no file {missing}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
