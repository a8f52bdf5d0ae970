"""Whether the server can answer, and what it counts; neither needs a key, and neither tells anything of a call."""

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from jaxinfer.openai_api.errors import unavailable
from jaxinfer.server.routes.documented import errors, text_answer
from jaxinfer.server.service import InferenceService

router = APIRouter()


class Health(BaseModel):
    """Attributes: ``ok``, the only one that comes with status 200."""

    status: str = "ok"


@router.head("/health", include_in_schema=False)  # some balancers ask so
@router.get("/health", responses=errors(503))
async def health(request: Request) -> Health:
    """200 while calls can be answered; 503 with the reason while they cannot: the engine has failed or hangs."""
    service: InferenceService = request.app.state.service
    if (problem := service.problem) is not None:
        raise unavailable(problem)
    return Health()


@router.get("/metrics", response_class=Response, responses=text_answer("text/plain", "Prometheus' exposition format."))
async def metrics(request: Request) -> Response:
    """Counters, gauges and histograms in Prometheus' text format."""
    service: InferenceService = request.app.state.service
    return Response(service.metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")
