"""``/v1/completions``: a text, or each of several, is gone on with."""

from fastapi import APIRouter, Request, Response

from jaxinfer.openai_api.completion_answer import Completion, CompletionStream, completion
from jaxinfer.openai_api.completion_body import CompletionBody
from jaxinfer.openai_api.heads import AnswerHead
from jaxinfer.server.answering import answered, streamed
from jaxinfer.server.api_route import ApiRoute
from jaxinfer.server.routes.documented import ERRORS_OF_CALLS
from jaxinfer.server.routes.models import check_model

router = APIRouter(route_class=ApiRoute)


@router.post("/v1/completions", response_model=Completion, responses=ERRORS_OF_CALLS)
async def complete(body: CompletionBody, request: Request) -> Completion | Response:
    """Go on from a text, or from each of several."""
    settings = request.app.state.settings
    check_model(body.model, settings)
    prompts, params, head = body.prompts(), body.params(), AnswerHead.new("cmpl", settings.model_name)
    if body.stream:
        maker = CompletionStream(head, params.n, include_usage=body.include_usage)
        return await streamed(request, prompts, params, maker)
    return completion(head, await answered(request, prompts, params))
