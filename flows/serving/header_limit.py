"""HTTP with a limit of a request's line and headers, which httptools has not: a client could fill the memory."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD = 1 << 19
"""Maximum bytes of a request's line and headers, and of what is received with their first byte."""


class LimitedHeaders(HttpToolsProtocol):
    """Answers status 400 and closes the connection if the headers are too long."""

    in_headers = False
    received = 0
    """Bytes received while the current headers are incomplete."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.in_headers, self.received = True, 0

    def on_headers_complete(self) -> None:
        self.in_headers = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.in_headers:
            self.received += len(data)
            if self.received > HEAD and not self.transport.is_closing():
                self.send_400_response("The headers are too long.")
