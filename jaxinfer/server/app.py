"""The application: all routes of one server over one model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from jaxinfer.llm import LLM
from jaxinfer.server.body_room import BodyRoom
from jaxinfer.server.call_log import CallLog
from jaxinfer.server.error_handlers import install_error_handlers
from jaxinfer.server.metrics import ServerMetrics
from jaxinfer.server.openapi_document import DocumentedApp
from jaxinfer.server.routes import chat, completions, health, models, page, tokenization
from jaxinfer.server.service import InferenceService
from jaxinfer.server.settings import ServerSettings

_LARGEST_BODIES_AT_ONCE = 32


def create_app(llm: LLM, settings: ServerSettings) -> FastAPI:
    """The server's application, for uvicorn.

    Args:
        llm: the model; nobody else may use it while the application runs.
        settings: the limits.

    Returns:
        The application; its ``state.service`` answers the calls and is started with it.
    """
    service = InferenceService(llm, settings, ServerMetrics(llm.engine.scheduler))

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()

    app = DocumentedApp(
        title="jaxinfer",
        version=version("jaxinfer"),
        lifespan=run,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
    )
    app.state.service, app.state.settings = service, settings
    app.state.body_room = BodyRoom(_LARGEST_BODIES_AT_ONCE * settings.max_body_bytes)
    install_error_handlers(app)
    app.add_middleware(CallLog, log_prompts=settings.log_prompts)
    for routes in (chat, completions, health, models, page, tokenization):
        app.include_router(routes.router)
    return app
