"""Parts that end in every way in which a part can end. They import nothing that takes long."""

import os
import signal
import sys
import time
from collections.abc import Iterator

from scripts.on_gpu.part import Row
from scripts.on_gpu.settings import Settings


def good(settings: Settings, *arguments: str) -> Iterator[Row]:
    yield Row("Numbers", {"name": "first", "us": 12.345, "arguments": " ".join(arguments)})
    yield Row("Numbers", {"name": "second", "share": None, "tiny": settings.tiny})


def wrong(settings: Settings) -> Iterator[Row]:
    yield Row("Numbers", {"name": "wrong", "ok": False}, is_fault=True)
    yield Row("Numbers", {"name": "after it"})


def diverged(settings: Settings) -> Iterator[Row]:
    yield Row("Numbers", {"name": "diverged", "error": float("inf"), "share": float("-inf"), "us": float("nan")})


def partial(settings: Settings) -> Iterator[Row]:
    yield Row("Numbers", {"name": "some", "ok": None}, num_not_run=3)
    yield Row("Numbers", {"name": "all", "ok": True})


def nothing(settings: Settings) -> Iterator[Row]:
    yield from ()


def needy(settings: Settings) -> Iterator[Row]:
    import no_such_package_at_all

    yield Row("Numbers", {"name": no_such_package_at_all.__name__})


def crash(settings: Settings) -> Iterator[Row]:
    yield Row("Numbers", {"name": "before the crash"})
    raise RuntimeError("the device is on fire")


def die(settings: Settings) -> Iterator[Row]:
    yield Row("Numbers", {"name": "before the end"})
    print("last words", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(settings: Settings) -> Iterator[Row]:
    yield Row("Numbers", {"name": "before the hang"})
    print("waiting", os.getpid(), file=sys.stderr, flush=True)
    time.sleep(600)
