"""The configuration of a language model on a server. Imports nothing that computes."""

from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from pipeline.config import Config, Whole

HIDDEN = "hidden_value"
"""Type of an error whose message must not show the value: it may be, or hold, a key or a password."""
Count = Annotated[Whole, Field(ge=1)]


def _address(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not value.isprintable() or " " in value:
        raise PydanticCustomError(HIDDEN, "an address such as https://HOST/v1 is expected")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise PydanticCustomError(
            HIDDEN, "the address must hold no user, password or query: the key is read from an environment variable"
        )
    return value.rstrip("/")


def _variable(value: Any) -> Any:
    if isinstance(value, str) and not (value.isascii() and value.isidentifier() and value.upper() == value):
        raise PydanticCustomError(
            HIDDEN, "the name of an environment variable in capitals is expected, not the key itself"
        )
    return value


class ServerConfig(Config):
    """A language model on an OpenAI-compatible server."""

    endpoint: Annotated[str | None, BeforeValidator(_address)]
    """Address of an OpenAI-compatible server, up to `/v1`."""
    model: str | None = Field(min_length=1)
    """Name of the server's model. It must not be null with `endpoint`."""
    key_variable: Annotated[str, BeforeValidator(_variable)]
    """Environment variable with the server's key. It is read when requests are sent, and stored nowhere; no key is sent
    if it is not set, or over http to another machine."""
    answer_tokens: Count
    """Most tokens that the model writes for a request."""
    temperature: float | None = Field(ge=0, le=2)
    """0: the most likely words. null: the server's default; a local model then writes as with 0."""
    concurrent: Whole = Field(ge=1, le=256)
    """Requests to the server at the same time."""
    timeout_seconds: float = Field(gt=0, le=86_400)
    """Of a request, until its answer is complete."""
    attempts: Count
    """How often a request is sent that the server does not answer, or answers by 429 or an error of its own."""
