"""Which models there are: one."""

import time
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel

from jaxinfer.openai_api.errors import ApiError
from jaxinfer.server.api_route import ApiRoute
from jaxinfer.server.routes.documented import ERRORS_OF_READING, errors
from jaxinfer.server.service import InferenceService
from jaxinfer.server.settings import ServerSettings

router = APIRouter(route_class=ApiRoute)

_STARTED = int(time.time())


class Model(BaseModel):
    """A model that can be asked.

    Attributes:
        id: its name.
        created: when the server started, in seconds since 1970.
        max_model_len: the longest prompt and output together, in tokens; vLLM tells it too.
    """

    id: str
    object: Literal["model"] = "model"
    created: int = _STARTED
    owned_by: str = "jaxinfer"
    max_model_len: int


class ModelList(BaseModel):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[Model]


def check_model(name: str | None, settings: ServerSettings) -> None:
    """Raises ApiError 404 unless ``name`` is the model's; None, as where it is left out, means the only one."""
    if name is not None and name != settings.model_name:
        raise ApiError(
            404,
            f"there is no model {name[:100]!r}; this server has {settings.model_name!r}",
            param="model",
            code="model_not_found",
        )


@router.get("/v1/models", responses=ERRORS_OF_READING)
async def list_models(request: Request) -> ModelList:
    """The models that can be asked."""
    return ModelList(data=[_model(request)])


@router.get("/v1/models/{model:path}", responses=ERRORS_OF_READING | errors(404))
async def retrieve_model(model: str, request: Request) -> Model:
    """One model."""
    check_model(model, request.app.state.settings)
    return _model(request)


def _model(request: Request) -> Model:
    service: InferenceService = request.app.state.service
    return Model(id=service.settings.model_name, max_model_len=service.llm.max_model_len)
