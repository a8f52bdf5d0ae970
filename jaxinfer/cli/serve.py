"""``jaxinfer serve``: OpenAI's API and a page to talk to, over HTTP."""

from typing import Annotated

from jaxinfer.cli import options
from jaxinfer.cli.engine_options import MOST_SEQS, EngineOptions
from jaxinfer.cli.exits import shown_warnings, usage_errors
from jaxinfer.cli.load import open_model
from jaxinfer.cli.option_groups import option_of, with_option_groups
from jaxinfer.cli.text_files import text_or_file

_option = option_of("Server")


@with_option_groups
def serve(
    *,
    host: Annotated[str, _option("The address to listen on; 0.0.0.0 for all, which lets others in.")] = "127.0.0.1",
    port: Annotated[int, _option("The port to listen on; 0 takes a free one.")] = 8000,
    api_key: Annotated[str | None, _option("What clients must bring as a bearer token: text, or @FILE.")] = None,
    model_name: Annotated[str | None, _option("What clients call the model. Without it: as --model.")] = None,
    max_queue: Annotated[int, _option("Sequences that may wait; more are refused with 429.")] = 256,
    max_sequences: Annotated[int, _option("Sequences of one call: its prompts times n.")] = 128,
    max_body_bytes: Annotated[int, _option("Bytes of the body of one call.")] = 4 * 2**20,
    request_timeout: Annotated[float, _option("Seconds from a call's arrival to its end.")] = 600.0,
    shutdown_grace: Annotated[float, _option("Seconds that running calls have after SIGTERM or Ctrl-C.")] = 30.0,
    log_prompts: Annotated[bool, _option("Tell in the log what was asked and answered, too.", "--log-prompts")] = False,
    engine: EngineOptions,
    max_num_seqs: options.MaxNumSeqs = None,
    max_chunk_tokens: options.MaxChunkTokens = 256,
    load_format: options.LoadFormat = "auto",
) -> None:
    """Serve a model over HTTP: OpenAI's API, and a page to talk to.

    Ends with code 0 on SIGTERM or Ctrl-C, when running calls are answered. Exit code 2: the options are wrong, or the
    address cannot be had; 4: a GPU kernel fails its test.
    """
    with shown_warnings(), usage_errors():
        from jaxinfer.server.run import bind
        from jaxinfer.server.run import serve as run
        from jaxinfer.server.settings import ServerSettings

        key = text_or_file("--api-key", api_key)
        settings = ServerSettings(
            model_name=engine.model if model_name is None else model_name,
            api_key=None if key is None else key.strip(),
            max_queue=max_queue,
            max_sequences=max_sequences,
            max_body_bytes=max_body_bytes,
            request_timeout=request_timeout,
            shutdown_grace=shutdown_grace,
            log_prompts=log_prompts,
        )
        listening = bind(host, port)
        opened = open_model(engine.model, load_format)
        llm = engine.load(
            opened,
            max_num_seqs=MOST_SEQS if max_num_seqs is None else max_num_seqs,
            max_chunk_tokens=max_chunk_tokens,
        )
    run(llm, settings, listening)
