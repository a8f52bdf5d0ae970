"""Imports run one way. A new module needs a line here, so that its place in the picture is a decision."""

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.import_graph import cycle, reachable, read_imports, violations

ROOT = Path(__file__).resolve().parents[1]

# From the leaves up: no module is allowed one that comes after it.
ALLOWED = {
    "jaxinfer.config": [],
    # One file is both checkpoint and vocabulary. Its format lies below the two packages that read it: one inside
    # `checkpoints` would bring, with that package, every loader and the hub to whoever wants a tokenizer.
    "jaxinfer.gguf_header": [],
    "jaxinfer.value_checks": [],
    "jaxinfer.structured_outputs.params": ["jaxinfer.value_checks"],
    "jaxinfer.sampling_params": ["jaxinfer.structured_outputs.params", "jaxinfer.value_checks"],
    "jaxinfer.weights": ["jaxinfer.config"],
    "jaxinfer.quantized_matrices": ["jaxinfer.config", "jaxinfer.weights"],
    "jaxinfer.request": ["jaxinfer.sampling_params"],
    "jaxinfer.logprobs": [],
    "jaxinfer.outputs": ["jaxinfer.logprobs"],
    "jaxinfer.token_masks": [],
    "jaxinfer.seeds": [],
    "jaxinfer.batch": ["jaxinfer.request"],
    "jaxinfer.page_allocator": [],
    "jaxinfer.page_hashes": [],
    "jaxinfer.kv_pages": [
        "jaxinfer.config",
        "jaxinfer.page_allocator",
        "jaxinfer.page_hashes",
        "jaxinfer.request",
    ],
    "jaxinfer.admission": ["jaxinfer.config", "jaxinfer.kv_pages", "jaxinfer.request", "jaxinfer.value_checks"],
    "jaxinfer.scheduler": [
        "jaxinfer.admission",
        "jaxinfer.batch",
        "jaxinfer.config",
        "jaxinfer.kv_pages",
        "jaxinfer.request",
    ],
    "jaxinfer.chat_template.*": ["jaxinfer.chat_template.*"],
    "jaxinfer.tokenizers.*": ["jaxinfer.chat_template.*", "jaxinfer.gguf_header", "jaxinfer.tokenizers.*"],
    "jaxinfer.stop_strings": [],
    "jaxinfer.output_filter": [],
    "jaxinfer.detokenizer": [
        "jaxinfer.output_filter",
        "jaxinfer.outputs",
        "jaxinfer.stop_strings",
        "jaxinfer.tokenizers.*",
    ],
    "jaxinfer.tool_calls.*": [
        "jaxinfer.detokenizer",
        "jaxinfer.output_filter",
        "jaxinfer.outputs",
        "jaxinfer.stop_strings",
        "jaxinfer.tokenizers.*",
        "jaxinfer.tool_calls.*",
    ],
    "pallas_kernels.*": ["pallas_kernels.*"],
    "jaxinfer.gpu_compile.*": ["jaxinfer.gpu_compile.*"],
    "jaxinfer.kv_cache": ["jaxinfer.config", "pallas_kernels.*"],
    "jaxinfer.layers": ["jaxinfer.config", "pallas_kernels.*"],
    "jaxinfer.step_inputs": ["jaxinfer.batch"],
    "jaxinfer.sampler": ["jaxinfer.step_inputs"],
    "jaxinfer.slot_state": ["jaxinfer.request"],
    "jaxinfer.adjustments": ["jaxinfer.batch", "jaxinfer.slot_state"],
    "jaxinfer.ranking": ["jaxinfer.logprobs"],
    "jaxinfer.prompt_scores": [
        "jaxinfer.batch",
        "jaxinfer.logprobs",
        "jaxinfer.ranking",
        "jaxinfer.step_inputs",
    ],
    "jaxinfer.model": [
        "jaxinfer.config",
        "jaxinfer.kv_cache",
        "jaxinfer.layers",
        "jaxinfer.step_inputs",
        "pallas_kernels.*",
    ],
    "jaxinfer.programs": [
        "jaxinfer.adjustments",
        "jaxinfer.config",
        "jaxinfer.kv_cache",
        "jaxinfer.model",
        "jaxinfer.ranking",
        "jaxinfer.sampler",
        "jaxinfer.sampling_params",
        "jaxinfer.slot_state",
        "jaxinfer.step_inputs",
        "jaxinfer.token_masks",
    ],
    "jaxinfer.kernel_choice": ["jaxinfer.config", "pallas_kernels.*"],
    "jaxinfer.kernel_case_pages": ["pallas_kernels.*"],
    "jaxinfer.kernel_cases": ["jaxinfer.config", "jaxinfer.kernel_case_pages", "pallas_kernels.*"],
    "jaxinfer.matmul_cases": ["jaxinfer.config", "jaxinfer.kernel_cases", "jaxinfer.weights", "pallas_kernels.*"],
    "jaxinfer.kernel_self_test": [
        "jaxinfer.config",
        "jaxinfer.kernel_cases",
        "jaxinfer.matmul_cases",
        "jaxinfer.programs",
        "jaxinfer.weights",
        "pallas_kernels.*",
    ],
    "jaxinfer.runner": [
        "jaxinfer.adjustments",
        "jaxinfer.prompt_scores",
        "jaxinfer.ranking",
        "jaxinfer.slot_state",
        "jaxinfer.config",
        "jaxinfer.kv_cache",
        "jaxinfer.model",
        "jaxinfer.programs",
        "jaxinfer.batch",
        "jaxinfer.logprobs",
        "jaxinfer.step_inputs",
        "jaxinfer.token_masks",
    ],
    "jaxinfer.structured_outputs": [],
    "jaxinfer.structured_outputs.schema_checks": ["jaxinfer.value_checks"],
    "jaxinfer.structured_outputs.lark_source": [
        "jaxinfer.structured_outputs.params",
        "jaxinfer.structured_outputs.schema_checks",
        "jaxinfer.tokenizers.*",
    ],
    "jaxinfer.structured_outputs.compilation": [],
    "jaxinfer.structured_outputs.library_tokens": [],
    "jaxinfer.structured_outputs.trial_process": [
        "jaxinfer.structured_outputs.compilation",
        "jaxinfer.structured_outputs.library_tokens",
    ],
    "jaxinfer.structured_outputs.trials": [],
    "jaxinfer.structured_outputs.vocabulary": [
        "jaxinfer.structured_outputs.library_tokens",
        "jaxinfer.token_masks",
        "jaxinfer.tokenizers.*",
    ],
    "jaxinfer.structured_outputs.grammar": [
        "jaxinfer.structured_outputs.compilation",
        "jaxinfer.structured_outputs.lark_source",
        "jaxinfer.structured_outputs.params",
        "jaxinfer.structured_outputs.trials",
        "jaxinfer.structured_outputs.vocabulary",
        "jaxinfer.token_masks",
        "jaxinfer.tokenizers.*",
    ],
    "jaxinfer.answer": [
        "jaxinfer.detokenizer",
        "jaxinfer.logprobs",
        "jaxinfer.outputs",
        "jaxinfer.request",
        "jaxinfer.token_masks",
    ],
    "jaxinfer.tracked": ["jaxinfer.answer", "jaxinfer.logprobs", "jaxinfer.outputs"],
    "jaxinfer.bad_words": ["jaxinfer.tokenizers.*", "jaxinfer.value_checks"],
    "jaxinfer.intake": [
        "jaxinfer.answer",
        "jaxinfer.bad_words",
        "jaxinfer.config",
        "jaxinfer.detokenizer",
        "jaxinfer.output_filter",
        "jaxinfer.request",
        "jaxinfer.sampling_params",
        "jaxinfer.seeds",
        "jaxinfer.stop_strings",
        "jaxinfer.structured_outputs.grammar",
        "jaxinfer.token_masks",
        "jaxinfer.tokenizers.*",
        "jaxinfer.tool_calls.*",
        "jaxinfer.tracked",
        "jaxinfer.value_checks",
    ],
    "jaxinfer.interrupts": [],
    "jaxinfer.engine": [
        "jaxinfer.answer",
        "jaxinfer.batch",
        "jaxinfer.config",
        "jaxinfer.intake",
        "jaxinfer.interrupts",
        "jaxinfer.output_filter",
        "jaxinfer.outputs",
        "jaxinfer.request",
        "jaxinfer.runner",
        "jaxinfer.sampling_params",
        "jaxinfer.scheduler",
        "jaxinfer.token_masks",
        "jaxinfer.tokenizers.*",
        "jaxinfer.tool_calls.*",
        "jaxinfer.tracked",
        "jaxinfer.value_checks",
    ],
    "jaxinfer.device_memory": [],
    "jaxinfer.limits": ["jaxinfer.config", "jaxinfer.device_memory", "jaxinfer.kv_cache", "jaxinfer.slot_state"],
    "checkpoints.*": ["checkpoints.*", "jaxinfer.config", "jaxinfer.gguf_header", "jaxinfer.weights"],
    "checkpoints.quantization": ["checkpoints.*", "jaxinfer.config", "jaxinfer.weights", "pallas_kernels.*"],
    "checkpoints.native.*": [
        "checkpoints.*",
        "jaxinfer.config",
        "jaxinfer.gguf_header",
        "jaxinfer.weights",
        "pallas_kernels.*",
    ],
    "checkpoints.gptq": ["checkpoints.*", "jaxinfer.config", "pallas_kernels.*"],
    "checkpoints.random_weights": ["jaxinfer.config", "jaxinfer.weights", "pallas_kernels.*"],
    "jaxinfer.calibration": [
        "checkpoints.*",
        "jaxinfer.config",
        "jaxinfer.layers",
        "jaxinfer.weights",
        "pallas_kernels.*",
    ],
    "jaxinfer.conversion": [
        "checkpoints.*",
        "jaxinfer.calibration",
        "jaxinfer.config",
        "jaxinfer.quantized_matrices",
        "jaxinfer.tokenizers.*",
        "jaxinfer.value_checks",
        "jaxinfer.weights",
    ],
    "jaxinfer.loading": [
        "checkpoints.*",
        "jaxinfer.limits",
        "jaxinfer.config",
        "jaxinfer.device_memory",
        "jaxinfer.engine",
        "jaxinfer.kernel_choice",
        "jaxinfer.kernel_self_test",
        "jaxinfer.kv_cache",
        "jaxinfer.model",
        "jaxinfer.output_filter",
        "jaxinfer.quantized_matrices",
        "jaxinfer.runner",
        "jaxinfer.tokenizers.*",
        "jaxinfer.weights",
        "pallas_kernels.*",
    ],
    "jaxinfer.prompts": [],
    "jaxinfer.safe_prompt": ["jaxinfer.tokenizers.*", "jaxinfer.value_checks"],
    "jaxinfer.scoring": [
        "jaxinfer.outputs",
        "jaxinfer.prompts",
        "jaxinfer.sampling_params",
        "jaxinfer.tokenizers.*",
        "jaxinfer.value_checks",
    ],
    "jaxinfer.divergence": [],
    "jaxinfer.pair_limits": [
        "jaxinfer.config",
        "jaxinfer.device_memory",
        "jaxinfer.limits",
        "jaxinfer.loading",
        "jaxinfer.scoring",
        "jaxinfer.slot_state",
        "jaxinfer.value_checks",
    ],
    "jaxinfer.model_pair": [
        "jaxinfer.batch",
        "jaxinfer.config",
        "jaxinfer.divergence",
        "jaxinfer.engine",
        "jaxinfer.loading",
        "jaxinfer.pair_limits",
        "jaxinfer.prompt_scores",
        "jaxinfer.request",
        "jaxinfer.runner",
        "jaxinfer.sampling_params",
        "jaxinfer.scheduler",
        "jaxinfer.scoring",
    ],
    "jaxinfer.quality": [
        "checkpoints.*",
        "jaxinfer.loading",
        "jaxinfer.model_pair",
        "jaxinfer.scoring",
        "jaxinfer.value_checks",
        "jaxinfer.weights",
    ],
    "jaxinfer.prompt_rendering": [
        "jaxinfer.prompts",
        "jaxinfer.safe_prompt",
        "jaxinfer.tokenizers.*",
        "jaxinfer.tool_calls.*",
    ],
    "jaxinfer.calls": ["jaxinfer.prompts", "jaxinfer.sampling_params"],
    "jaxinfer.llm": [
        "jaxinfer.calls",
        "jaxinfer.config",
        "jaxinfer.engine",
        "jaxinfer.loading",
        "jaxinfer.output_filter",
        "jaxinfer.outputs",
        "jaxinfer.prompt_rendering",
        "jaxinfer.prompts",
        "jaxinfer.sampling_params",
        "jaxinfer.scheduler",
        "jaxinfer.scoring",
    ],
    "jaxinfer": [
        "jaxinfer.llm",
        "jaxinfer.logprobs",
        "jaxinfer.output_filter",
        "jaxinfer.outputs",
        "jaxinfer.quality",
        "jaxinfer.sampling_params",
        "jaxinfer.structured_outputs.params",
    ],
    "jaxinfer.openai_api.*": [
        "jaxinfer.detokenizer",
        "jaxinfer.logprobs",
        "jaxinfer.openai_api.*",
        "jaxinfer.outputs",
        "jaxinfer.prompts",
        "jaxinfer.sampling_params",
        "jaxinfer.structured_outputs.params",
        "jaxinfer.tokenizers.*",
        "jaxinfer.tool_calls.*",
        "jaxinfer.value_checks",
    ],
    "jaxinfer.server.*": [
        "jaxinfer.admission",
        "jaxinfer.engine",
        "jaxinfer.llm",
        "jaxinfer.openai_api.*",
        "jaxinfer.outputs",
        "jaxinfer.prompts",
        "jaxinfer.sampling_params",
        "jaxinfer.scheduler",
        "jaxinfer.server.*",
        "jaxinfer.tokenizers.*",
        "jaxinfer.tracked",
        "jaxinfer.value_checks",
    ],
    "jaxinfer.bench.*": ["jaxinfer.bench.*", "jaxinfer.value_checks"],
    "jaxinfer.cli.*": [
        "jaxinfer.cli.*",
        "checkpoints.*",
        "jaxinfer.bench.*",
        "jaxinfer.config",
        "jaxinfer.conversion",
        "jaxinfer.kernel_self_test",
        "jaxinfer.llm",
        "jaxinfer.loading",
        "jaxinfer.logprobs",
        "jaxinfer.model_pair",
        "jaxinfer.outputs",
        "jaxinfer.prompts",
        "jaxinfer.quality",
        "jaxinfer.quantized_matrices",
        "jaxinfer.safe_prompt",
        "jaxinfer.sampling_params",
        "jaxinfer.scoring",
        "jaxinfer.server.*",
        "jaxinfer.structured_outputs.grammar",
        "jaxinfer.structured_outputs.params",
        "jaxinfer.tokenizers.*",
        "jaxinfer.value_checks",
        "jaxinfer.weights",
    ],
    "jaxinfer.__main__": ["jaxinfer.cli.*"],
}

THIRD_PARTY = {
    "jaxinfer": [
        "fastapi",
        "flax",
        "gguf",
        "httpx",
        "jax",
        "jaxtyping",
        "jinja2",
        "llguidance",
        "matplotlib",
        "mistral_common",
        "numpy",
        "prometheus_client",
        "pydantic",
        "pydantic_core",
        "rich",
        "sentencepiece",
        "starlette",
        "tokenizers",
        "typer",
        "uvicorn",
    ],
    "pallas_kernels": ["jax", "jax_triton", "jaxtyping", "triton"],
    "checkpoints": ["gguf", "huggingface_hub", "jax", "jaxtyping", "ml_dtypes", "numpy", "orbax", "safetensors"],
}

HOST_ONLY = [
    "jaxinfer.config",
    "jaxinfer.page_allocator",
    "jaxinfer.request",
    "jaxinfer.sampling_params",
    "jaxinfer.scheduler",
    "jaxinfer.weights",
]
DEVICE_LIBRARIES = ["jax", "jaxlib", "flax"]


@pytest.fixture(scope="module")
def graph():
    return read_imports(ROOT, THIRD_PARTY)


def import_without_jax(modules):
    """Import ``modules`` in a fresh interpreter in which jax and flax are not to be had."""
    code = f"import sys; sys.modules.update(dict.fromkeys({DEVICE_LIBRARIES})); import {', '.join(modules)}"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_every_import_is_allowed(graph):
    assert violations(graph, ALLOWED, THIRD_PARTY) == []


def test_every_line_of_the_table_is_about_a_module_that_exists(graph):
    assert [name for name in ALLOWED if name.removesuffix(".*") not in graph] == []


def test_no_modules_import_each_other_in_a_circle(graph):
    assert cycle(graph) == []


def test_no_module_of_the_table_comes_before_what_it_imports():
    places = {name: place for place, name in enumerate(ALLOWED)}
    assert [(name, below) for name in ALLOWED for below in ALLOWED[name] if places[below] > places[name]] == []


@pytest.mark.parametrize("module", HOST_ONLY)
def test_host_modules_reach_no_jax(graph, module):
    assert module in graph
    assert reachable(graph, module).isdisjoint(DEVICE_LIBRARIES)


def test_host_modules_can_be_imported_where_jax_cannot():
    done = import_without_jax(HOST_ONLY)
    assert done.returncode == 0, done.stderr
    assert "jax" in import_without_jax(["jaxinfer.kv_cache"]).stderr


def test_third_party_imports_are_declared_dependencies(graph):
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["jax-triton"], *extras["mistral"], *extras["plot"]]
    declared = {canonicalize_name(Requirement(line).name) for line in lines}
    owners = packages_distributions()
    imported = set().union(*graph.values()) - set(graph)
    # What is not installed here has no owner; it goes by its own name.
    undeclared = {
        name for name in imported if declared.isdisjoint(canonicalize_name(owner) for owner in owners.get(name, [name]))
    }
    assert undeclared == set()


def test_nothing_but_the_triton_kernel_imports_triton_at_once():
    code = "import sys; import jaxinfer, pallas_kernels.quantized_matmul; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


@pytest.fixture
def project(tmp_path):
    """Writes modules of a made-up project, ``{path: source}``, and reads their imports."""

    def write(sources):
        for path, source in sources.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(source)
        return read_imports(tmp_path, ["app", "lib"])

    return write


SMALL_ALLOWED = {"app": [], "app.low": [], "app.high": ["app.low"], "lib.*": ["lib.*"]}
SMALL_THIRD_PARTY = {"app": ["numpy"], "lib": []}


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("app/high.py", "import os.path\nimport numpy.linalg\nfrom app.low import Thing", []),
        ("app/high.py", "from app import low", []),
        ("lib/one/deep.py", "from lib.two import x", []),
        ("app/low.py", "import app.high", ["app.low may not import app.high"]),
        ("app/low.py", "from app import high", ["app.low may not import app.high"]),
        ("app/low.py", "from .high import Thing", ["app.low may not import app.high"]),
        ("app/low.py", "def late():\n    from app.high import Thing", ["app.low may not import app.high"]),
        ("app/low.py", "from app import Thing", ["app.low may not import app"]),
        ("lib/one/deep.py", "import app.low", ["lib.one.deep may not import app.low"]),
        ("lib/one/deep.py", "import numpy as np", ["lib.one.deep may not import numpy"]),
        ("app/high.py", "from torch import nn", ["app.high may not import torch"]),
        ("app/new.py", "", ["app.new has no entry in the table of imports"]),
        ("app/low_tide.py", "", ["app.low_tide has no entry in the table of imports"]),
    ],
)
def test_what_the_table_refuses(project, path, source, expected):
    bare = {"app/__init__.py": "", "app/low.py": "", "app/high.py": "", "lib/__init__.py": "", "lib/two.py": ""}
    assert violations(project(bare | {path: source}), SMALL_ALLOWED, SMALL_THIRD_PARTY) == expected


def test_a_circle_is_found(project):
    straight = {"app/__init__.py": "", "app/a.py": "import app.b", "app/b.py": "import app.c", "app/c.py": ""}
    assert cycle(project(straight)) == []
    assert set(cycle(project(straight | {"app/c.py": "from app.a import x"}))) == {"app.a", "app.b", "app.c"}


def test_a_library_is_reached_through_other_modules(project):
    graph = project({"app/a.py": "import app.b", "app/b.py": "import lib.c", "lib/c.py": "import jax.numpy"})
    assert reachable(graph, "app.a") == {"app.b", "lib.c", "jax"}
