"""The options of ``jaxinfer bench serve`` by what they are about: the server, what it is asked, and how often."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jaxinfer.cli.json_values import parse_object
from jaxinfer.cli.option_groups import option_of
from jaxinfer.cli.text_files import read_file_or_stdin, shown_name, text_or_file
from jaxinfer.value_checks import check_int, shown

if TYPE_CHECKING:
    from jaxinfer.bench.target import Target
    from jaxinfer.bench.workload import Workload

_server, _prompts, _load = map(option_of, ("Server", "Prompts", "Load"))

_INPUT_TOKENS, _OUTPUT_TOKENS = 128, 128


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Who is asked; the help of each option is its documentation."""

    base_url: Annotated[str, _server("Where the server is, with or without /v1.")] = "http://127.0.0.1:8000"
    api_key: Annotated[str | None, _server("Brought as a bearer token: text, or @FILE.")] = None
    model: Annotated[str | None, _server("Its name there. Without it: the first of /v1/models.")] = None
    endpoint: Annotated[str, _server("completions, or chat: each prompt is a user's message.")] = "completions"

    def target(self, fields: dict[str, Any]) -> tuple["Target", int | None]:
        """The server's model with ``fields`` in each body, and its length in tokens where the server tells it.

        Raises:
            ValueError: an option is wrong, or the server cannot be reached.
        """
        from jaxinfer.bench.served_model import served_model
        from jaxinfer.bench.target import Target, api_root, checked_endpoint

        endpoint = checked_endpoint(self.endpoint)
        root, key = api_root(self.base_url), text_or_file("--api-key", self.api_key)
        key = None if key is None else key.strip()
        model = served_model(root, key, self.model)
        target = Target(root=root, endpoint=endpoint, model=model.name, api_key=key, fields=fields)
        return target, model.max_model_len


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """What is asked; the help of each option is its documentation."""

    prompts_file: Annotated[
        str | None,
        _prompts(
            "A UTF-8 file with one prompt per line, or in .jsonl one object with prompt and, if it is to differ, "
            "max_tokens; - reads stdin. A run may take them several times, and each run takes the same."
        ),
    ] = None
    lengths: Annotated[
        Path | None,
        _prompts(
            "A CSV file with the columns prompt_tokens and output_tokens: made-up prompts of about these lengths, in "
            "their order."
        ),
    ] = None
    max_total_tokens: Annotated[
        int | None,
        _prompts("Leave out --lengths with more tokens in all. Without it: than the model takes, if the server tells."),
    ] = None
    input_tokens: Annotated[
        int | None, _prompts(f"Tokens of a made-up prompt, about. Without it: {_INPUT_TOKENS}.")
    ] = None
    output_tokens: Annotated[int | None, _prompts(f"The most tokens of an answer. Without it: {_OUTPUT_TOKENS}.")] = (
        None
    )
    ignore_eos: Annotated[
        bool, _prompts("Go on to the last of these tokens; not every server knows it.", "--ignore-eos")
    ] = False
    temperature: Annotated[float, _prompts("0 takes the most likely token.")] = 0.0
    extra_body: Annotated[str | None, _prompts("More fields of each request, as a JSON object.")] = None

    def fields(self) -> dict[str, Any]:
        """More of each body.

        Raises:
            ValueError: ``--extra-body`` is no JSON object, or asks for several sequences.
        """
        fields: dict[str, Any] = {"temperature": self.temperature}
        if self.ignore_eos:
            fields["ignore_eos"] = True
        more = parse_object("--extra-body", self.extra_body) or {}
        for name in ("n", "best_of"):  # times and tokens of several sequences would be taken for those of one
            if more.get(name) not in (None, 1):
                raise ValueError(f"--extra-body has {name} {shown(more[name])}; one sequence is measured")
        return fields | more

    def workload(self, max_model_len: int | None) -> "Workload":
        """The prompts.

        Raises:
            ValueError: options contradict each other, or a file is wrong.
        """
        from jaxinfer.bench.lengths import read_lengths
        from jaxinfer.bench.prompts_file import prompts_of_file
        from jaxinfer.bench.workload import MadeUpPrompts

        self._check()
        output_tokens = _OUTPUT_TOKENS if self.output_tokens is None else self.output_tokens
        if self.prompts_file is not None:
            text = read_file_or_stdin("--prompts-file", "the prompts file", self.prompts_file)
            return prompts_of_file(text, shown_name(self.prompts_file), output_tokens)
        if self.lengths is None:
            return MadeUpPrompts([(_INPUT_TOKENS if self.input_tokens is None else self.input_tokens, output_tokens)])
        try:
            prompts = MadeUpPrompts(read_lengths(self.lengths, None))
        except OSError as error:
            raise ValueError(f"the lengths {self.lengths} cannot be read: {error.strerror}") from error
        most = max_model_len if self.max_total_tokens is None else self.max_total_tokens
        return prompts if most is None else prompts.fitting(most)

    def _check(self) -> None:
        if self.prompts_file is not None and self.lengths is not None:
            raise ValueError("--prompts-file and --lengths are both given; choose one")
        if self.input_tokens is not None and (self.prompts_file is not None or self.lengths is not None):
            raise ValueError("--input-tokens is of made-up prompts; leave it out beside --prompts-file and --lengths")
        if self.output_tokens is not None and self.lengths is not None:
            raise ValueError("--output-tokens and --lengths both say how long the answers are; choose one")
        if self.max_total_tokens is not None and self.lengths is None:
            raise ValueError("--max-total-tokens goes with --lengths")
        for option, value in (("--input-tokens", self.input_tokens), ("--output-tokens", self.output_tokens)):
            if value is not None:
                check_int(option, value, "a whole number >= 1", 1)


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How often, and for how long; the help of each option is its documentation. Values are checked where they go."""

    rate: Annotated[
        list[float] | None,
        _load("Requests per second, or inf: all at once; may be given several times, for a run each. Without it: inf."),
    ] = None
    burstiness: Annotated[
        float, _load("1: arrivals as of independent users (Poisson); below they come in bursts, above more evenly.")
    ] = 1.0
    num_prompts: Annotated[int, _load("Requests of each run.")] = 100
    max_concurrency: Annotated[
        int | None, _load("Requests under way at once; more wait in the client, unmeasured. Without it: any number.")
    ] = None
    num_warmups: Annotated[int, _load("Requests before the first run, one after the other, not counted.")] = 1
    timeout: Annotated[float, _load("Seconds that a request may take.")] = 600.0
    seed: Annotated[int, _load("For the same arrivals and the same made-up prompts again.")] = 0

    @property
    def settings(self) -> dict[str, Any]:
        """As arguments of ``ServeBenchmark``."""
        return {
            "rates": self.rate or [float("inf")],
            "burstiness": self.burstiness,
            "num_prompts": self.num_prompts,
            "num_warmups": self.num_warmups,
            "max_concurrency": self.max_concurrency,
            "timeout": self.timeout,
            "seed": self.seed,
        }
