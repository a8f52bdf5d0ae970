"""``jaxinfer chat`` as a person has it: a real model at a real terminal."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from select import select

import pytest

ROOT = Path(__file__).resolve().parents[2]

AT_TERMINAL = """
import os
os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first to be opened in a session is the one whose Ctrl-C it gets
from jaxinfer.__main__ import main
main()
"""


class Terminal:
    """A program at a terminal of its own, a context that ends it."""

    def __init__(self, *arguments):
        self._fd, inner = pty.openpty()
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), inner)
        command = [sys.executable, "-c", AT_TERMINAL, *map(str, arguments)]
        env = os.environ | {"TERM": "xterm"}
        self._running = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True, **streams)
        os.close(inner)
        self._seen = ""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._running.kill()
        self._running.wait()
        os.close(self._fd)

    def type(self, keys):
        os.write(self._fd, keys.encode())

    def read_to(self, pattern):
        """The first match in what is shown, once it is there; fails where nothing more is shown for a minute."""
        while (found := re.search(pattern, self._seen)) is None:
            ready, _, _ = select([self._fd], [], [], 60)
            assert ready, f"no {pattern!r} in {self._seen!r}"
            self._seen += os.read(self._fd, 4096).decode(errors="replace").replace("\r\n", "\n")
        self._seen = self._seen[found.end() :]
        return found

    def press_ctrl_c_in_a_line(self, pattern):
        """As ``read_to``, but presses until it is there: Python's reading of a line sleeps through a signal that comes
        after its look at the signals and before its wait for a key."""
        for _ in range(60):
            self.type("\x03")
            if select([self._fd], [], [], 1)[0]:
                return self.read_to(pattern)
        raise AssertionError(f"no {pattern!r} after Ctrl-C")

    def exit_code(self):
        return self._running.wait(timeout=60)


SPEED = r"stopped\n(\d+) prompt tokens(?: \((\d+) cached\))?, (\d+) output tokens, .* tokens per second\n> "


@pytest.fixture
def story_teller(shared_data, tmp_path):
    """A model of 260,000 weights that goes on for long, with a chat template for those who ask it."""
    for file in (shared_data / "stories260K-hf").iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((tmp_path / "config.json").read_text()) | {"max_position_embeddings": 8192}
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config))
    template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return tmp_path


def test_a_person_stops_an_answer_goes_on_and_leaves(story_teller):
    with Terminal("chat", "--model", story_teller, "--temperature", "0", "--ignore-eos") as terminal:
        terminal.read_to("/help lists the commands.*\n> ")
        counts = []
        for message in ("Once upon a time", "Then"):
            terminal.type(f"{message}\r")
            terminal.read_to(rf"{message}\n[^>]{{100}}")
            terminal.type("\x03")
            counts.append([int(number or 0) for number in terminal.read_to(SPEED).groups()])
        (prompt, cached, output), (next_prompt, next_cached, _) = counts
        assert cached == 0
        assert 20 < prompt + output < 8192
        assert next_prompt > prompt + output / 2  # the answer is in it, perhaps in fewer tokens
        assert next_cached >= 16
        terminal.type("lost")
        terminal.read_to("lost")
        terminal.press_ctrl_c_in_a_line("Ctrl-D or /exit leaves\n> ")
        terminal.type("/undo\r")
        terminal.read_to("exchanges left: 1\n> ")
        terminal.type("\x04")
        assert terminal.exit_code() == 0
