"""Room for the bodies that are read at the same time: each is within its limit, and many together are not held."""

from jaxinfer.openai_api.errors import ApiError


class BodyRoom:
    """Counts the bytes of all bodies, from the first one that comes to the answer, or to the beginning of a stream.

    Args:
        num_bytes: that may be held at the same time. What is made of a body takes several times as much.
    """

    def __init__(self, num_bytes: int) -> None:
        self._num_free = num_bytes

    def take(self, num_bytes: int) -> None:
        """Hold so many more. Raises ApiError 429 where that is too much."""
        if num_bytes > self._num_free:
            raise ApiError(
                429,
                "too many large bodies are read at once; try again in a second",
                type="rate_limit_error",
                code="rate_limit_exceeded",
                headers={"Retry-After": "1"},
            )
        self._num_free -= num_bytes

    def give_back(self, num_bytes: int) -> None:
        """They are held no more."""
        self._num_free += num_bytes
