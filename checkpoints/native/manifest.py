"""``jaxinfer.json``: what a native checkpoint says of itself.

It is written last, so a folder that has it is whole, and it lists every file with its size and its CRC-32: neither
orbax nor what lies below looks whether the bytes of an array are still those that were written.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from checkpoints.description import Description
from jaxinfer.weights import Formats

MANIFEST = "jaxinfer.json"
WEIGHTS = "weights"

FORMAT = "jaxinfer native checkpoint"
VERSION = 1


@dataclass(frozen=True)
class StoredFile:
    """A file of the checkpoint: its size and the CRC-32 of its bytes."""

    num_bytes: int
    crc32: int


@dataclass(frozen=True)
class SourceFile:
    """A file that weights were read from: its size, and the SHA-256 that the Hugging Face hub shows of it too."""

    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """What was converted.

    Attributes:
        name: as it was called.
        layout: of its files.
        files: those of its weights, by their path from the source's folder.
    """

    name: str
    layout: str
    files: Mapping[str, SourceFile]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A native checkpoint, but for its arrays.

    Attributes:
        description: the model.
        dtype: of the weights that are floats, ``float32`` or ``bfloat16``.
        formats: of the others.
        method: how these were made of floats; None: nobody did, or the source had them.
        source: what was converted.
        versions: of the programs that wrote it.
        files: all files but the manifest, by their path from its folder, with slashes.
    """

    description: Description
    dtype: str
    formats: Formats
    method: str | None
    source: Source
    versions: Mapping[str, str]
    files: Mapping[str, StoredFile]

    def part_files(self, part: str) -> dict[str, StoredFile]:
        """Those of one part of the model."""
        return {name: file for name, file in self.files.items() if name.startswith(f"{WEIGHTS}/{part}/")}

    def to_json(self) -> str:
        """The text of the file; ``manifest_reading.read_manifest`` is the inverse."""
        values = {
            "format": FORMAT,
            "version": VERSION,
            "config": asdict(self.description.config),
            "eos_token_ids": self.description.eos_token_ids,
            "eos_spellings": self.description.eos_spellings,
            "dtype": self.dtype,
            "formats": {name: asdict(quantization) for name, quantization in self.formats.items()},
            "method": self.method,
            "source": asdict(self.source),
            "versions": dict(self.versions),
            "files": {name: asdict(file) for name, file in self.files.items()},
        }
        return json.dumps(values, indent=1) + "\n"


def is_native(folder: Path) -> bool:
    """Whether a folder has a manifest, whatever that says."""
    return (folder / MANIFEST).is_file()


def part_of(name: str) -> tuple[str, str]:
    """The part of the model that a weight lies in, and what it is called there."""
    part, dot, rest = name.rpartition(".")
    return (part, rest) if dot else (name, name)


def parts_of(names: Iterable[str]) -> dict[str, list[str]]:
    """The weights of each part, in order."""
    parts: dict[str, list[str]] = {}
    for name in names:
        parts.setdefault(part_of(name)[0], []).append(name)
    return parts
