"""``/v1/chat/completions``: a conversation is answered."""

from fastapi import APIRouter, Request, Response

from jaxinfer.openai_api.chat_answer import ChatCompletion, ChatStream, chat_completion
from jaxinfer.openai_api.chat_body import ChatBody
from jaxinfer.openai_api.chat_logprobs import LogprobWriter
from jaxinfer.openai_api.heads import AnswerHead
from jaxinfer.server.answering import answered, as_json, streamed
from jaxinfer.server.api_route import ApiRoute
from jaxinfer.server.routes.documented import ANSWERS_OF_CALLS
from jaxinfer.server.routes.models import check_model

router = APIRouter(route_class=ApiRoute)


@router.post("/v1/chat/completions", response_model=ChatCompletion, responses=ANSWERS_OF_CALLS)
async def chat(body: ChatBody, request: Request) -> Response:
    """Answer a conversation."""
    settings = request.app.state.settings
    check_model(body.model, settings)
    choice, head = body.choice(), AnswerHead.new("chatcmpl", settings.model_name)
    prompt, params = body.prompt(choice), body.params(choice)
    logprobs = LogprobWriter(request.app.state.service.llm.tokenizer, body.top_logprobs or 0)
    if body.stream:
        maker = ChatStream(head, choice, logprobs, include_usage=body.include_usage)
        return await streamed(request, [prompt], params, maker)
    [output] = await answered(request, [prompt], params)
    return await as_json(lambda: chat_completion(head, output, choice, logprobs))
