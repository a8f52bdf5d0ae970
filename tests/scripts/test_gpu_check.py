"""The check for the day with a GPU: its parts in tiny, and that what one of them does costs the others nothing."""

import json
import time
from pathlib import Path

import pytest

from scripts.on_gpu.check import check, main
from scripts.on_gpu.part import DEFAULT_SECONDS, PARTS, Part, Row, named
from scripts.on_gpu.report import as_markdown
from scripts.on_gpu.result import PartResult, read
from scripts.on_gpu.run_part import run_part
from scripts.on_gpu.settings import Settings
from scripts.on_gpu.signals import Stop

ONE_FORMAT = [part for part in PARTS if part.name not in ("model.bfloat16", "model.int4", "model.int8")]
"""The others differ from the one that is left in the drawing of weights, which has tests of its own, and in the plainer
cache.
"""


def fake(name: str, seconds: float = 30, *arguments: str) -> Part:
    return Part(name=name, function=f"tests.scripts.fake_parts:{name}", seconds=seconds, arguments=arguments)


def run_fakes(out: Path, *parts: Part, seconds: float = 60) -> tuple[int, dict[str, PartResult]]:
    """The exit status, and what the report has of each part."""
    status = check(parts, out, seconds=seconds, tiny=True, lengths=None, stop=Stop())
    results = json.loads((out / "gpu-check.json").read_text())
    assert [result["name"] for result in results] == [part.name for part in parts]
    results = {r["name"]: PartResult(**r | {"rows": tuple(Row(**row) for row in r["rows"])}) for r in results}
    return status, results


def first_column(result: PartResult) -> list[str]:
    return [row.values["name"] for row in result.rows]


@pytest.mark.parametrize("part", ONE_FORMAT, ids=lambda part: part.name)
def test_a_part_runs_in_tiny_and_leaves_its_rows(part: Part, tmp_path: Path):
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("prompt_tokens,output_tokens\n5,3\n500,400\n7,2\n")
    path = tmp_path / "part.json"
    result = run_part(part, Settings(seconds=600, tiny=True, lengths=lengths), path)
    assert result.rows
    assert [row for row in result.rows if row.is_fault] == []
    assert result.status == "ok"
    assert read(path, part.name) == result


def test_parts_that_crash_hang_or_are_wrong_leave_the_others(tmp_path: Path):
    parts = (fake("hang", 2), fake("crash"), fake("wrong"), fake("die"), fake("good", 30, "a", "b"))
    begin = time.monotonic()
    status, results = run_fakes(tmp_path, *parts, seconds=122)
    assert time.monotonic() - begin < 20  # and not the 600 s of the one that hangs
    assert status == 1
    statuses = {name: result.status for name, result in results.items()}
    assert statuses == {"crash": "failed", "hang": "timed out", "wrong": "wrong", "die": "failed", "good": "ok"}
    assert first_column(results["crash"]) == ["before the crash"]
    assert first_column(results["hang"]) == ["before the hang"]
    assert first_column(results["die"]) == ["before the end"]
    assert first_column(results["wrong"]) == ["wrong", "after it"]
    assert results["good"].rows[0].values == {"name": "first", "us": 12.345, "arguments": "a b"}
    assert "the device is on fire" in results["crash"].reason
    assert "more than 2 s" in results["hang"].reason and "waiting" in results["hang"].reason
    assert "-11" in results["die"].reason and "last words" in results["die"].reason
    page = (tmp_path / "gpu-check.md").read_text()
    assert "| crash | failed | 1 | 0 |" in page and "the device is on fire" in page
    assert "| second |" in page


def test_what_was_not_run_is_not_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Nothing that it compared was wrong, but it did not compare all, or nothing at all."""
    status, results = run_fakes(tmp_path, fake("partial"), fake("good"), fake("nothing"))
    assert status == 1
    assert {name: result.status for name, result in results.items()} == {
        "partial": "incomplete",
        "good": "ok",
        "nothing": "incomplete",
    }
    assert results["partial"].num_not_run == 3 and "3 cases" in results["partial"].reason
    assert "| partial | incomplete | 2 | 3 |" in (tmp_path / "gpu-check.md").read_text()
    last = capsys.readouterr().out.splitlines()[-1]
    assert "partial (incomplete)" in last and "nothing (incomplete)" in last and "good" not in last


def test_numbers_that_json_does_not_have_are_texts(tmp_path: Path):
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    run_fakes(tmp_path, fake("diverged"))
    for name in ("diverged.json", "gpu-check.json"):
        assert '"inf"' in (tmp_path / name).read_text()
        json.loads((tmp_path / name).read_text(), parse_constant=refuse)
    assert "| diverged | inf | -inf | nan |" in (tmp_path / "gpu-check.md").read_text()


def test_a_missing_package_is_said_in_one_line(tmp_path: Path):
    status, results = run_fakes(tmp_path, fake("needy"))
    assert (status, results["needy"].status) == (1, "failed")
    assert "needy needs no_such_package_at_all, which is not installed" in results["needy"].reason
    assert "Traceback" not in results["needy"].reason


def test_a_good_run_ends_with_0_and_a_second_one_forgets_the_first(tmp_path: Path):
    assert run_fakes(tmp_path, fake("good"))[0] == 0
    (tmp_path / "hang.json").write_text((tmp_path / "good.json").read_text())
    status, results = run_fakes(tmp_path, fake("hang", 1), seconds=1)
    assert (status, results["hang"].status, first_column(results["hang"])) == (1, "timed out", ["before the hang"])


def test_a_run_of_other_parts_keeps_what_the_earlier_ones_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    parts = [fake("good"), fake("wrong"), fake("crash"), fake("nothing")]
    monkeypatch.setattr("scripts.on_gpu.check.PARTS", parts)
    assert run_fakes(tmp_path, fake("wrong"))[0] == 1
    (tmp_path / "crash.json").write_text("[]")
    assert (
        check([fake("good")], tmp_path, seconds=60, tiny=False, lengths=None, stop=Stop()) == 0
    )  # its own parts alone count
    good, wrong, crash = json.loads((tmp_path / "gpu-check.json").read_text())
    assert (good["name"], good["is_earlier"], good["tiny"]) == ("good", False, False)
    assert (wrong["name"], wrong["is_earlier"], wrong["tiny"]) == ("wrong", True, True)
    assert [row["values"] for row in wrong["rows"]] == [{"name": "wrong", "ok": False}, {"name": "after it"}]
    assert crash["is_earlier"] and "crash.json holds no result" in crash["reason"]
    page = (tmp_path / "gpu-check.md").read_text()
    assert "| part | status | rows | not run | s | run |" in page
    assert "| wrong | - | - | - | - | NO | earlier, tiny |" in page


def test_what_no_longer_fits_is_said_to_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    status, results = run_fakes(tmp_path, fake("good", 10), fake("crash", 100), seconds=10)
    assert results["good"].status == "ok"
    assert results["crash"].status == "not run"
    assert status == 1
    assert "| crash | not run |" in (tmp_path / "gpu-check.md").read_text()
    assert "crash (not run)" in capsys.readouterr().out.splitlines()[-1]


def test_time_is_shared_out_and_what_one_part_leaves_is_for_the_others(monkeypatch, tmp_path: Path):
    """Of a clock that only parts move."""
    clock, given = [0.0], dict[str, float]()

    def run(part: Part, settings: Settings, out: Path, stop: Stop) -> PartResult:
        given[part.name] = settings.seconds
        clock[0] += settings.seconds if part.name == "hang" else 10
        return PartResult(name=part.name, status="ok")

    monkeypatch.setattr("scripts.on_gpu.check.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("scripts.on_gpu.check.supervise", run)
    parts = [fake("good", 30), fake("hang", 40), fake("wrong", 20), fake("die", 30)]
    assert check(parts, tmp_path, seconds=120, tiny=True, lengths=None, stop=Stop()) == 0
    assert given["good"] == 30
    assert given["hang"] == pytest.approx(40 * 110 / 90)
    assert given["wrong"] == pytest.approx(20 * (110 - given["hang"]) / 50)
    given.clear()
    clock[0] = 0
    assert check(parts, tmp_path, seconds=60, tiny=True, lengths=None, stop=Stop()) == 0
    assert given["good"] == 15  # half of what it may take, and every part had its chance
    assert clock[0] <= 60
    given.clear()
    assert check(parts, tmp_path, seconds=30, tiny=True, lengths=None, stop=Stop()) == 1
    assert list(given) == ["good", "hang"]  # a fourth of the time would do none of them any good


def test_parts_by_name_and_by_group():
    assert [part.name for part in named("speed, versions")] == ["versions", "speed.products", "speed.attention"]
    with pytest.raises(ValueError, match="no part is named 'spee'; there are versions, "):
        named("spee")


def test_an_unknown_part_is_refused_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--out", str(tmp_path / "out"), "--parts", "nothing"])
    assert ended.value.code == 2
    assert "nothing" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_all_parts_together_fit_the_eight_minutes_with_some_seconds_for_those_that_must_be_stopped():
    assert sum(part.seconds for part in PARTS) <= DEFAULT_SECONDS <= 480 - len(PARTS)


def test_the_page_joins_rows_of_one_table_and_rounds_to_three_digits():
    first = PartResult(name="a", status="ok", rows=(Row("T", {"x": 1234.5, "y": True}), Row("U", {"z": 0.000012})))
    second = PartResult(name="b", status="ok", rows=(Row("T", {"x": 12.345, "w": "a|b\nc"}), Row("T", {"y": False})))
    page = as_markdown([first, second], tiny=False)
    assert page.count("## T") == 1
    table = page.partition("## T\n\n")[2].splitlines()
    assert table[:5] == [
        "| x | y | w |",
        "| --- | --- | --- |",
        "| 1,234 | yes | - |",
        "| 12.3 | - | a/b c |",
        "| - | NO | - |",
    ]
    assert "| 1.2e-05 |" in page
    assert "means anything" not in page and "means anything" in as_markdown([first], tiny=True)
