"""The limits of a server: what one client may ask for, so that it cannot hurt the others."""

import re
from dataclasses import dataclass
from math import inf

from jaxinfer.value_checks import check_bool, check_int, check_number, shown

_KEY = re.compile("[!-~]+")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """What the server allows.

    Attributes:
        model_name: the name that clients call the model by.
        api_key: what they must bring; None: anyone is served.
        max_queue: sequences that may wait beside the ``max_num_seqs`` that run; more are refused with 429.
        max_sequences: of one call: its prompts times ``n`` or ``best_of``.
        max_body_bytes: of the body of one call.
        request_timeout: seconds from the arrival of a call to its end, after which it is ended with 504.
        shutdown_grace: seconds that running calls have after SIGTERM.
        log_prompts: whether the log tells what was asked and answered.

    Raises:
        ValueError: a value is out of range; the message names it and what is allowed.
    """

    model_name: str
    api_key: str | None = None
    max_queue: int = 256
    max_sequences: int = 128
    max_body_bytes: int = 4 * 2**20
    request_timeout: float = 600.0
    shutdown_grace: float = 30.0
    log_prompts: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.model_name, str) or not self.model_name:
            raise ValueError(f"model_name is {shown(self.model_name)}; it must be text, and not empty")
        if self.api_key is not None and (not isinstance(self.api_key, str) or not _KEY.fullmatch(self.api_key)):
            raise ValueError(
                "api_key has a space or a letter that no header carries, or is empty; it must be printable ASCII, or "
                "None, which lets anyone in"
            )
        check_int("max_queue", self.max_queue, "a whole number >= 0", 0)
        check_int("max_sequences", self.max_sequences, "a whole number >= 1", 1)
        check_int("max_body_bytes", self.max_body_bytes, "a whole number >= 1", 1)
        check_number("request_timeout", self.request_timeout, "a number of seconds > 0", lambda s: 0 < s < inf)
        check_number("shutdown_grace", self.shutdown_grace, "a number of seconds >= 0", lambda s: 0 <= s < inf)
        check_bool("log_prompts", self.log_prompts)
