"""``/tokenize`` and ``/detokenize``: how the model reads a text, without asking it."""

from functools import partial

from fastapi import APIRouter, Request, Response

from jaxinfer.llm import LLM
from jaxinfer.openai_api.tokenization import DetokenizeBody, Detokenized, TokenizeBody, Tokenized
from jaxinfer.server.answering import as_json
from jaxinfer.server.api_route import ApiRoute, ends_at
from jaxinfer.server.connection import while_connected
from jaxinfer.server.routes.documented import ERRORS_OF_READING, errors
from jaxinfer.server.routes.models import check_model
from jaxinfer.server.service import InferenceService
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.value_checks import check_token_ids

router = APIRouter(route_class=ApiRoute)

_ERRORS = ERRORS_OF_READING | errors(404, 504)


@router.post("/tokenize", response_model=Tokenized, responses=_ERRORS)
async def tokenize(body: TokenizeBody, request: Request) -> Response:
    """The tokens of a text, or of a conversation."""
    service: InferenceService = request.app.state.service
    check_model(body.model, service.settings)
    work = partial(_token_ids, service.llm, body, body.text())
    tokens = await while_connected(request, service.beside(work, ends_at(request)))
    max_model_len = service.llm.max_model_len
    return await as_json(lambda: Tokenized(tokens=tokens, count=len(tokens), max_model_len=max_model_len))


@router.post("/detokenize", response_model=Detokenized, responses=_ERRORS)
async def detokenize(body: DetokenizeBody, request: Request) -> Response:
    """The text of tokens."""
    service: InferenceService = request.app.state.service
    check_model(body.model, service.settings)
    work = partial(_text, service.llm, body.tokens)
    text = await while_connected(request, service.beside(work, ends_at(request)))
    return await as_json(lambda: Detokenized(prompt=text))


def _token_ids(llm: LLM, body: TokenizeBody, text: str | None) -> list[int]:
    if text is not None:
        return _tokenizer(llm).encode(text, add_special_tokens=body.add_special_tokens is not False)
    rendered = llm.renderer.render(body.conversation()).prompt
    assert not isinstance(rendered, str), "a conversation is rendered to token ids"
    return list(rendered)


def _text(llm: LLM, token_ids: list[int]) -> str:
    tokenizer = _tokenizer(llm)
    check_token_ids("tokens", token_ids, llm.model_config.vocab_size)
    return tokenizer.decode(token_ids)


def _tokenizer(llm: LLM) -> Tokenizer:
    if llm.tokenizer is None:
        raise ValueError("the model has no tokenizer: it is asked with token ids, and answers with them")
    return llm.tokenizer
