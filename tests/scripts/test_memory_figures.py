"""The figures of ``docs/memory.md`` on loads small enough to follow by hand, and the command that writes them."""

from pathlib import Path

import pytest

from jaxinfer.config import CacheMode, EngineConfig
from scripts.memory_figures import __main__ as command
from scripts.memory_figures import tables
from scripts.memory_figures.example import example_table
from scripts.memory_figures.growth import most_pages
from scripts.memory_figures.load import conversations, run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "memory.md"


def limits(cache: CacheMode) -> EngineConfig:
    """Room for 64 tokens in 16 pages, and 32 for the longest request."""
    return EngineConfig(
        max_model_len=32, max_num_seqs=16, max_chunk_tokens=64, block_q=4, page_size=4, num_kv_pages=16, cache=cache
    )


def test_a_load_that_is_computed_by_hand():
    """Eight requests of 3 + 5 tokens, of which 7 come into the cache: two pages each, so all eight run at once.

    A prompt takes one block of 4, so the first step reads all of them and draws 8 tokens; four more steps draw the
    others. Reserved room holds two requests at a time, so there are four pairs, of 5 steps each: when a pair has
    nothing more to launch, the next one waits until its last token is read.
    """
    load = conversations([(3, 5)] * 8, max_tokens=None)
    paged, contiguous = run(limits("paged"), load), run(limits("contiguous"), load)
    assert (paged.num_steps, paged.peak_in_flight, paged.mean_in_flight) == (5, 8, 8)
    assert (paged.num_output_tokens, contiguous.num_output_tokens) == (40, 40)
    assert (contiguous.num_steps, contiguous.peak_in_flight, contiguous.mean_in_flight) == (20, 2, 2)
    assert tables.paged_ratio(limits("paged"), limits("contiguous"), load) == pytest.approx(4)


def test_how_much_of_the_pool_is_filled():
    """Reserved room of 64 tokens: the first pair's prompts, then a token more of each with each of its 5 steps.

    The last pair runs when none waits, and does not count.
    """
    load = conversations([(3, 5)] * 4, max_tokens=None)
    assert run(limits("contiguous"), load).mean_filled == pytest.approx((6 + 8 + 10 + 12 + 14) / 5 / 64)


def test_an_end_by_a_stop_token_is_seen_a_step_late():
    """One request draws its fifth token, the stop token, in step 5, and step 6 was launched when that is read."""
    known, unknown = (run(limits("paged"), conversations([(3, 5)], max_tokens=n)) for n in (None, 20))
    assert (known.num_steps, unknown.num_steps) == (5, 6)
    assert known.num_output_tokens == unknown.num_output_tokens == 5


def test_a_pool_that_is_too_small_preempts():
    """Four requests of 4 + 20 tokens want 6 pages each of 16; each is admitted, with room for 4 tokens more of all."""
    figures = run(limits("paged"), conversations([(4, 20)] * 4, max_tokens=None))
    assert figures.peak_in_flight == 4
    assert figures.counters.num_preemptions >= 1
    assert figures.counters.num_resumptions == figures.counters.num_preemptions
    assert figures.num_output_tokens == 80


def test_an_output_longer_than_the_limits_is_refused():
    with pytest.raises(ValueError, match=r"prompt of 30 tokens draws 5.*max_model_len 32 allow 2"):
        run(limits("paged"), conversations([(30, 5)], max_tokens=None))


def test_pages_on_the_way_to_a_length():
    """A window of 32 and chunks of 256 over pages of 16: none leaves before 32 tokens, and the bound is 19 pages.

    The prompt of 922 comes in four chunks. The second one's first token sees from 225 on, page 14, and its last is in
    page 31: 18 pages, and as many for the third. The fourth is shorter.
    """
    assert most_pages(32, [256, 512, 1024]) == [16, 18, 18]
    assert most_pages(None, [256, 512, 1024]) == [16, 32, 64]


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """From a file of few and short lengths: all tables are made, and what a person wrote around them stays."""
    (tmp_path / "sharegpt_lengths.csv").write_text("prompt_tokens,output_tokens\n3,5\n20,8\n")
    written = PAGE.read_text(encoding="utf-8")
    copy = tmp_path / "memory.md"
    copy.write_text(written, encoding="utf-8")
    command.main(["--data", str(tmp_path), "--page", str(copy)])
    text = copy.read_text(encoding="utf-8")
    assert capsys.readouterr().out.startswith(f"wrote {copy}")
    assert text != written and "| 2 | 4,096 | 256 | 1.0 | 1.0 | 1.0 |" in text
    prose = [line for line in written.splitlines() if not line.startswith("|")]
    assert [line for line in text.splitlines() if not line.startswith("|")] == prose


def test_tables_that_read_no_data_are_those_of_the_page():
    """The example, the window and the bytes follow from the code: a change of it shows here."""
    page = PAGE.read_text(encoding="utf-8")
    for table in (example_table(), tables.window_table(), tables.dtype_table()):
        assert table in page, "run `make memory-figures`"


def test_a_missing_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        command.main(["--data", str(tmp_path / "none")])
    assert ended.value.code == 2
    assert str(tmp_path / "none" / "sharegpt_lengths.csv") in capsys.readouterr().err
