"""Sums over whole files, in pieces: a file of weights can be larger than memory."""

import zlib
from pathlib import Path

from checkpoints.native.manifest import MANIFEST

_PIECE = 2**22


def checksum(path: Path) -> int:
    """The CRC-32 of a file. It finds damage, which SHA-256 would at a third of the speed, and no forgery.

    Raises:
        ValueError: the file cannot be read.
    """
    crc = 0
    try:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                crc = zlib.crc32(piece, crc)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    return crc


def check_sum(path: Path, crc32: int) -> None:
    """Fails unless a file has the sum that the manifest says.

    Raises:
        ValueError: it has not, or it cannot be read.
    """
    if checksum(path) != crc32:
        raise ValueError(f"{path}: its bytes are not those that were written: the CRC-32 is not that of {MANIFEST}")
