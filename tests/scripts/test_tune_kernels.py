"""The tuning writes what is right and fast, and drops what is neither."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from jaxinfer.config import EngineConfig
from jaxinfer.programs import chunk_sizes, row_sizes
from pallas_kernels.device import Device, current_device
from pallas_kernels.paged_attention.configs import Config as AttentionConfig
from pallas_kernels.paged_attention.configs import Problem as AttentionProblem
from pallas_kernels.quantized_matmul.configs import Config, Problem, find_config
from pallas_kernels.tuned import read_table, round_up, table_name, write_table
from scripts.on_gpu import tune as command
from scripts.on_gpu.attention_tuning import attention_cases
from scripts.on_gpu.compiling import OutOfTimeError
from scripts.on_gpu.product_tuning import NO_TABLE, ProductTuning, product_cases
from scripts.on_gpu.products import products_of
from scripts.on_gpu.settings import Settings
from scripts.on_gpu.tuning import DeviceLostError, tune

TINY = Settings(seconds=86_400, tiny=True)  # from when the tests are collected
CONFIGS = [Config(block_rows=rows) for rows in (16, 32, 64, 128)]
H100 = Device(platform="gpu", kind="NVIDIA H100 80GB HBM3", num_cores=132, compute_capability=(9, 0))


def problem(num_rows: int) -> Problem:
    return Problem(
        num_rows=num_rows, num_outputs=64, num_inputs=64, weight="int8", group_size=0, swiglu=False, dtype="bfloat16"
    )


@dataclass
class FakeCase:
    """A problem whose candidates take and return what the test says."""

    problem: Problem = field(default_factory=lambda: problem(16))
    microseconds: dict[Config, int] = field(default_factory=dict)
    errors: dict[Config, float] = field(default_factory=dict)
    donated: tuple[int, ...] = ()

    def __str__(self) -> str:
        return "the case"

    def candidates(self, device: Device) -> list[Config]:
        return list(self.microseconds)

    def limit(self, config: Config) -> float:
        return 0.02

    def shapes(self, settings: Settings) -> tuple[Any, ...]:
        return (jnp.zeros(()),)

    def program(self, config: Config):
        def run(x):
            if self.errors.get(config) is None:
                raise ValueError("shared memory")
            return x + self.errors[config], x + self.microseconds[config]

        return run

    def bench(self, settings: Settings) -> "FakeCase":
        return self

    def error(self, program) -> float:
        return float(program(jnp.zeros(()))[0])

    def seconds(self, program, settings: Settings) -> float:
        return float(program(jnp.zeros(()))[1]) / 1e6


LARGE = Settings(seconds=86_400)


def test_the_fastest_of_the_right_candidates_wins():
    rule, wrong, fast, broken = CONFIGS
    case = FakeCase(microseconds={rule: 30, wrong: 1, fast: 20, broken: 2}, errors={rule: 0, wrong: 0.5, fast: 0.01})
    outcome = tune(case, current_device(), LARGE)
    assert outcome.best == fast
    assert outcome.gain == pytest.approx(1.5)
    assert outcome.dropped[wrong] == "wrong by 0.5" and "shared memory" in outcome.dropped[broken]


def test_a_wrong_rule_of_thumb_has_no_gain_and_nothing_right_has_no_best():
    rule, other = CONFIGS[:2]
    outcome = tune(FakeCase(microseconds={rule: 3, other: 5}, errors={rule: 1, other: 0}), current_device(), LARGE)
    assert (outcome.best, outcome.gain) == (other, None)
    assert tune(FakeCase(microseconds={rule: 3}), current_device(), LARGE).best is None


def test_what_is_not_tried_in_time_is_not_written():
    with pytest.raises(OutOfTimeError):
        tune(FakeCase(microseconds={CONFIGS[0]: 3}), current_device(), Settings(seconds=0))


def test_a_lost_device_ends_it_and_names_the_candidate(monkeypatch: pytest.MonkeyPatch):
    def lost(x: object) -> None:
        raise RuntimeError("an illegal memory access")

    case = FakeCase(microseconds={CONFIGS[0]: 3})
    monkeypatch.setattr("scripts.on_gpu.tuning.jax.block_until_ready", lost)
    with pytest.raises(DeviceLostError, match=r"after Config\(block_rows=16.*illegal memory access"):
        tune(case, current_device(), LARGE)


def run_main(monkeypatch: pytest.MonkeyPatch, cases: list[Any], out: Path, *options: str) -> int:
    monkeypatch.setattr(command, "product_cases", lambda *arguments: cases)
    return command.main(["--tiny", "--operations", "quantized_matmul", "--out", str(out), *options])


def test_tables_are_merged_and_what_they_have_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    path = tmp_path / "quantized_matmul" / "tuned" / table_name(current_device())
    first, second = CONFIGS[:2]
    write_table(path, {problem(1): CONFIGS[3], problem(16): CONFIGS[3]})
    cases = [
        FakeCase(problem=problem(16), microseconds={first: 1}, errors={first: 0}),
        FakeCase(problem=problem(32), microseconds={first: 2, second: 1}, errors={first: 0, second: 0}),
        FakeCase(problem=problem(64), microseconds={first: 1}, errors={first: 1}),
    ]
    assert run_main(monkeypatch, cases, tmp_path) == 1  # nothing is right for the last one
    read_table.cache_clear()
    assert read_table(path, Problem, Config) == {problem(1): CONFIGS[3], problem(16): CONFIGS[3], problem(32): second}
    read_table.cache_clear()
    assert run_main(monkeypatch, cases[:2], tmp_path, "--again") == 0
    read_table.cache_clear()
    assert read_table(path, Problem, Config)[problem(16)] == first


def test_what_another_run_writes_meanwhile_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    path, config = tmp_path / "quantized_matmul" / "tuned" / table_name(current_device()), CONFIGS[0]

    class OtherRun(FakeCase):
        def shapes(self, settings: Settings) -> tuple[Any, ...]:
            write_table(path, {problem(2): CONFIGS[1], problem(32): CONFIGS[2]})
            return super().shapes(settings)

    cases = [
        cls(problem=problem(rows), microseconds={config: 1}, errors={config: 0})
        for cls, rows in ((OtherRun, 16), (FakeCase, 32))
    ]
    assert run_main(monkeypatch, cases, tmp_path) == 0
    read_table.cache_clear()
    assert read_table(path, Problem, Config) == {problem(2): CONFIGS[1], problem(16): config, problem(32): CONFIGS[2]}


def test_a_real_product_is_tuned_and_found_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    case = ProductTuning(product=products_of("stories260k")[1], weight_format="int8", num_rows=2)
    assert run_main(monkeypatch, [case], tmp_path) == 0
    found = find_config(case.problem, current_device(), tmp_path / "quantized_matmul" / "tuned")
    assert found in case.candidates(current_device())


def test_what_xla_computes_in_place_of_the_kernel_may_round_more_often():
    case = ProductTuning(product=products_of("stories260k")[1], weight_format="int4/row", num_rows=64)
    limits = {config.method: case.limit(config) for config in case.candidates(H100)}
    assert limits == {"fused": 2e-2, "library": 4e-2}


def test_real_attention_is_tuned():
    case = next(attention_cases(["stories260k"], TINY))
    outcome = tune(case, current_device(), TINY)
    assert not outcome.dropped
    assert outcome.best is not None


def test_the_problems_are_those_that_the_kernels_look_up():
    cases = list(product_cases(["mistral-7b-v0.1", "mistral-7b-v0.3"], ["bfloat16", "int4/64"], [1, 512]))
    assert len(cases) == 5 * 2 * 2  # the two models have the same products
    assert Problem(
        num_rows=1,
        num_outputs=28672,
        num_inputs=4096,
        weight="int4",
        group_size=64,
        swiglu=True,
        dtype="bfloat16",
    ) in [case.problem for case in cases]
    attention = [case.problem for case in attention_cases(["mistral-7b-v0.1"], LARGE)]
    assert (
        AttentionProblem(
            num_blocks=16, block_q=1, num_kv_heads=8, group=4, head_dim=128, dtype="bfloat16", kv_dtype="int8"
        )
        in attention
    )
    assert len(attention) == len(set(attention)) == 20


def test_every_program_of_a_default_engine_is_tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """And of one with twice the rows and the chunk, as in a check of requests."""
    asked = []
    monkeypatch.setattr(command, "product_cases", lambda models, formats, rows: asked.extend(rows) or [])
    assert command.main(["--tiny", "--operations", "quantized_matmul", "--out", str(tmp_path)]) == 0
    assert asked == sorted(set(asked))
    attention = {case.problem for case in attention_cases(["mistral-7b-v0.1"], LARGE)}
    tuned_blocks = {(problem.block_q, problem.num_blocks) for problem in attention}
    for limits in ({}, {"max_num_seqs": 64, "max_chunk_tokens": 512}):
        config = EngineConfig(max_model_len=4096, num_kv_pages=1, **limits)
        for rows in row_sizes(config.max_num_seqs):
            assert (1, round_up(rows)) in tuned_blocks
            for chunk in chunk_sizes(config.max_chunk_tokens, config.block_q):
                assert round_up(rows + chunk) in asked
                assert not chunk or (config.block_q, round_up(chunk // config.block_q)) in tuned_blocks
    assert {1, 8, 32, 128, 256, 512, 1024} <= set(asked)


@pytest.mark.parametrize("num_rows", [1, 8, 16, 32, 64, 128, 256, 512, 1024])
@pytest.mark.parametrize("weight_format", ["bfloat16", "int8", "int4/64"])
def test_candidates_are_some_dozens_that_fit_and_the_rule_is_first(weight_format: str, num_rows: int):
    for case in product_cases(["mistral-7b-v0.1"], [weight_format], [num_rows]):
        candidates = case.candidates(H100)
        assert candidates[0] == find_config(case.problem, H100, NO_TABLE)
        assert 8 < len(candidates) < 60
        if weight_format == "int4/64":
            assert {config.block_inputs for config in candidates[2:]} == {128}
    for case in attention_cases(["mistral-7b-v0.1"], LARGE):
        candidates = case.candidates(H100)
        assert {config.combine for config in candidates} == {"last_split", "second_kernel"}
        assert all(isinstance(config, AttentionConfig) for config in candidates)
        assert 20 < len(candidates) < 100


@pytest.mark.parametrize(("options", "said"), [(["--tiny"], "--out"), (["--rows", "3"], "powers of two")])
def test_what_makes_no_sense_is_refused(options: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        command.main(options)
    assert said in capsys.readouterr().err
