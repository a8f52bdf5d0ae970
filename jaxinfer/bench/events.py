"""Server-sent events out of the bytes of a stream, as they come."""


class EventReader:
    """Takes the pieces of one stream, wherever they were cut, and gives the data of each event that is whole.

    The format is that of the HTML standard, section 9.2.6, without a lone CR as the end of a line. Fields other than
    ``data`` and comments, which some servers send to keep a connection open, are left out; so is what comes after the
    last blank line.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that end in this piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events = []
        for line in lines:
            content = line.removesuffix(b"\r")
            if content.startswith(b"data:"):
                self._data.append(content.removeprefix(b"data:").removeprefix(b" "))
            elif not content and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events
