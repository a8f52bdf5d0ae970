"""What goes wrong with a call, as OpenAI's API tells it: an object ``error`` with message, type, param and code."""

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    """Attributes: what is wrong, for people; its kind, the field that it is about and a name for it, for programs."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """The body of every answer that is an error."""

    error: ErrorDetail


class ApiError(Exception):
    """A call that cannot be answered.

    Attributes:
        status: of HTTP.
        detail: what the caller is told.
        headers: of the answer, besides.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}
        self.detail = ErrorDetail(message=message, type=type, param=param, code=code)

    @property
    def body(self) -> dict[str, object]:
        """What JSON is to say."""
        return ErrorBody(error=self.detail).model_dump()


def invalid(message: str, param: str | None = None) -> ApiError:
    """What the caller asks for is wrong."""
    return ApiError(400, message, param=param)


def unavailable(message: str) -> ApiError:
    """The server is ending, or its engine has ended: another one may answer."""
    return ApiError(503, message, type="server_error", code="unavailable")


def failed(message: str) -> ApiError:
    """The server's own fault."""
    return ApiError(500, message, type="server_error", code="internal_error")
