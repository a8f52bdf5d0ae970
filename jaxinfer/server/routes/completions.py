"""``/v1/completions``: a text, or each of several, is gone on with."""

from fastapi import APIRouter, Request, Response

from jaxinfer.openai_api.completion_answer import Completion, CompletionStream, completion
from jaxinfer.openai_api.completion_body import CompletionBody
from jaxinfer.openai_api.heads import AnswerHead
from jaxinfer.server.answering import answered, as_json, streamed
from jaxinfer.server.api_route import ApiRoute
from jaxinfer.server.routes.documented import ANSWERS_OF_CALLS
from jaxinfer.server.routes.models import check_model

router = APIRouter(route_class=ApiRoute)


@router.post("/v1/completions", response_model=Completion, responses=ANSWERS_OF_CALLS)
async def complete(body: CompletionBody, request: Request) -> Response:
    """Go on from a text, or from each of several."""
    settings = request.app.state.settings
    check_model(body.model, settings)
    prompts, params, head = body.prompts(), body.params(), AnswerHead.new("cmpl", settings.model_name)
    tokenizer = request.app.state.service.llm.tokenizer
    if body.stream:
        return await streamed(request, prompts, params, CompletionStream(head, body, tokenizer))
    outputs = await answered(request, prompts, params)
    return await as_json(lambda: completion(head, body, tokenizer, outputs))
