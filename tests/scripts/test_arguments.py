"""What both command lines refuse in one line and with exit status 2, before anything runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pallas_kernels.device import current_device
from pallas_kernels.tuned import table_name
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


@MAINS
def test_a_folder_that_cannot_be_made_is_one_line(main, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_text("kept")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        try:
            status = main(["--tiny", "--out", str(out)])
        except SystemExit as ended:
            status = ended.code
        lines = capsys.readouterr().err.splitlines()
        assert (status, len(lines)) == (2, 1)
        assert "no file can be written into the folder" in lines[0] and str(out) in lines[0]
    assert (tmp_path / "file").read_text() == "kept"


def test_tuning_on_a_cpu_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert tune.main(["--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "tune_kernels: error: jax sees no GPU; --tiny runs on a CPU\n"
    assert not (tmp_path / "out").exists()


def test_tuning_with_a_broken_table_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "quantized_matmul" / "tuned" / table_name(current_device())
    path.parent.mkdir(parents=True)
    path.write_text("[{")
    assert tune.main(["--tiny", "--out", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and f"{path} is no table" in lines[0]
    assert path.read_text() == "[{"
