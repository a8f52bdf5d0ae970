"""A hub on localhost, as far as ``huggingface_hub`` needs one to find a model and download its files."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

COMMIT = "b" * 40


@dataclass
class FakeHub:
    """What the hub has and how it behaves; tests change it while it runs.

    Attributes:
        repositories: the files of each model, by its id.
        revisions: what each model may be asked for beside its commit.
        refusals: status and ``X-Error-Code`` for each model that it does not give away. The list of files of one with
            ``GatedRepo`` is public.
        broken: names of files of which only the first half is sent.
        released: while it is not set, requests are not answered.
        downloaded: the names of the files that were sent, in order.
        num_requests: how many there were, answered or not.
    """

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: tuple[str, ...] = ("main",)
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    released: threading.Event = field(default_factory=threading.Event)
    downloaded: list[str] = field(default_factory=list)
    num_requests: int = 0

    def __post_init__(self) -> None:
        self.released.set()

    def add(self, repo_id: str, *folders: Path) -> None:
        """A model of all files in ``folders``."""
        self.repositories[repo_id] = {
            file.relative_to(folder).as_posix(): file.read_bytes()
            for folder in folders
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        }


@contextmanager
def running(hub: FakeHub) -> Iterator[str]:
    """Serves ``hub`` on a free port; gives its address."""

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        hub.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def use(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Lets ``huggingface_hub``, which reads its settings when it is imported, ask the hub at ``address``."""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that does not wait for its answer is no fault."""


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *arguments: object) -> None:
        """Not on stderr."""

    def _answer(self) -> None:
        self.hub.num_requests += 1
        self.hub.released.wait()
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        owner, name, *rest = parts[2:] if is_api else parts
        repo_id = f"{owner}/{name}"
        status, code = self.hub.refusals.get(repo_id, (404, "RepoNotFound"))
        refused = repo_id in self.hub.refusals and not (is_api and code == "GatedRepo")
        if refused or repo_id not in self.hub.repositories:
            return self._refuse(status, code)
        kind, revision, *path = rest or ["revision", "main"]
        if revision not in (*self.hub.revisions, COMMIT):
            return self._refuse(404, "RevisionNotFound")
        files = self.hub.repositories[repo_id]
        if is_api:
            return self._send(json.dumps(_listing(kind, repo_id, files)).encode())
        file = "/".join(path)
        return self._send(files[file], file) if file in files else self._refuse(404, "EntryNotFound")

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, content: bytes, file: str | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{_blob_id(content)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "HEAD":
            return
        if file is not None:
            self.hub.downloaded.append(file)
            if file in self.hub.broken:
                self.wfile.write(content[: len(content) // 2])
                self.close_connection = True
                return
        self.wfile.write(content)


def _listing(kind: str, repo_id: str, files: dict[str, bytes]) -> object:
    if kind == "tree":
        return [
            {"type": "file", "path": name, "size": len(content), "oid": _blob_id(content)}
            for name, content in files.items()
        ]
    return {"id": repo_id, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}


def _blob_id(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
