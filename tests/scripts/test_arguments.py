"""What both command lines refuse in one line and with exit status 2, before anything runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.on_gpu import check, tune

MAINS = pytest.mark.parametrize("main", [check.main, tune.main], ids=["check", "tune"])


def refusal(main: Callable[[list[str]], int], options: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The last line on stderr, after the usage."""
    with pytest.raises(SystemExit) as ended:
        main(["--tiny", *options])
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@MAINS
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
def test_a_time_that_is_none_is_refused(main, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = [f"--seconds={value}", "--out", str(tmp_path / "out")]
    assert f"{value!r} is no number of seconds" in refusal(main, options, capsys)
    assert not (tmp_path / "out").exists()


@MAINS
def test_an_empty_folder_is_refused(main, capsys: pytest.CaptureFixture[str]):
    assert "names no folder" in refusal(main, ["--out", ""], capsys)
