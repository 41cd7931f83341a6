"""A client of an OpenAI-compatible server. What it answers is foreign: its length, time and form have limits.

The key is in this object and in the header of a request, nowhere else: it follows no redirect, and it is removed from
everything that the server sends back.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

from pipeline.errors import InputError, reason
from pipeline.formatting import counted
from pipeline.language_model.chat_completion import SHOWN, Answer, Malformed, Message, message_of, parse
from pipeline.language_model.config import ServerConfig
from pipeline.language_model.connections import Connections
from pipeline.notices import one_line
from pipeline.runtime.network import check_usable, is_loopback

if TYPE_CHECKING:
    import httpx

Result = TypeVar("Result")
MOST_BYTES = 1 << 20
"""Of an answer's body."""
LONGEST_WAIT = 300.0
"""Seconds. A server that asks for a longer pause is not waited for."""
FIRST_WAIT = 1.0
"""Seconds before the second attempt; each further pause is twice as long, up to MOST_WAIT."""
MOST_WAIT = 30.0
CONNECTING = 15.0
"""Seconds until a connection is open."""
SILENCE = 30.0
"""Seconds without an answer after which a line says so, and again after each further one."""
GRACE = 2.0
"""Seconds that an interrupted run waits for requests that are being answered: they are paid for."""
INSTEAD = "[key]"
SHORTEST_KEY = 12
"""Characters. A shorter one is no secret but what servers without keys get, such as `EMPTY` or `x`: questions may have
this word.
"""


class Failed(Exception):
    """One request got no answer; others may. The message is one line for the user."""


class Refused(Failed):
    """The server answers, but not this request, such as for what its text says."""


class _Again(Exception):
    """The request may succeed later. `seconds`: the pause that the server asks for."""

    def __init__(self, why: str, seconds: float | None = None) -> None:
        super().__init__(why)
        self.seconds = seconds


class Endpoint:
    """Sends requests; several threads may. A context, which ends its threads and connections.

    `prefix`: of the names of the settings in messages, such as `--` of options. `say`: shows the user a line.
    """

    def __init__(
        self,
        config: ServerConfig,
        environment: Mapping[str, str] = os.environ,
        prefix: str = "generate.",
        say: Callable[[str], object] = lambda line: None,
    ) -> None:
        import httpx

        assert config.endpoint is not None
        self._config = config
        self._prefix = prefix
        self._say = say
        self._key = read_key(config, environment)
        self._limit_field = "max_tokens"
        self._stopped = threading.Event()
        self._connections = Connections()
        self._trouble = ""
        self._pool = ThreadPoolExecutor(config.concurrent, "endpoint")
        self._running: WeakSet[Future[Any]] = WeakSet()
        check_usable(f"{prefix}endpoint {config.endpoint}")
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._client = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(config.timeout_seconds, connect=min(CONNECTING, config.timeout_seconds)),
            follow_redirects=False,
            trust_env=not is_loopback(config.endpoint),
            limits=httpx.Limits(max_connections=config.concurrent),
        )

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Ends all pauses: a request that failed is sent no more. Those that are being answered go on; if the user
        interrupts, for a short time.
        """
        self._stopped.set()
        if kind is not None and not issubclass(kind, Exception):
            wait(self._running, GRACE)
            self._connections.cut()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    def start(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Calls a function that calls `ask`, in another thread. The end of the context waits for it."""
        future = self._pool.submit(function, *arguments)
        self._running.add(future)
        return future

    def wait(self, running: Collection[Future[Any]]) -> set[Future[Any]]:
        """Waits for the first of these calls, and returns those that ended. Says when it takes long, and why."""
        silent = 0.0
        while not (done := wait(running, SILENCE, FIRST_COMPLETED).done) and running:
            silent += SILENCE
            why = f"; the last attempt failed: {self._trouble}" if self._trouble else ""
            self._say(self._line(f"no answer for {silent:g} seconds{why}"))
        return done

    def ask(self, messages: Sequence[Message]) -> Answer:
        """Returns the answer. Raises Failed if there is none after all attempts, and InputError if no request can
        succeed: a wrong address, key or model.
        """
        import httpx

        attempts = self._config.attempts
        for attempt in range(1, attempts + 1):
            try:
                answer = self._send(messages)
                self._trouble = ""
                return answer
            except _Again as error:
                why, seconds = str(error), error.seconds
            except httpx.TimeoutException:
                why, seconds = self._too_slow("no answer"), None
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                why, seconds = self._without_key(reason(error)), None
            if seconds is not None and seconds > LONGEST_WAIT:
                raise Failed(f"{why}; it asks to wait {seconds:.0f} seconds")
            self._trouble = why
            pause = min(MOST_WAIT, FIRST_WAIT * 2 ** (attempt - 1)) if seconds is None else seconds
            if attempt == attempts or self._stopped.wait(pause):
                raise Failed(f"{why} ({counted(attempt, 'attempts')})")
        raise AssertionError

    def _send(self, messages: Sequence[Message]) -> Answer:
        config = self._config
        body: dict[str, Any] = {"model": config.model, "messages": list(messages), "stream": False}
        limit_field = self._limit_field  # other threads change it
        body[limit_field] = config.answer_tokens
        if config.temperature is not None:
            body["temperature"] = config.temperature
        started = time.monotonic()
        address, extensions = f"{config.endpoint}/chat/completions", {"trace": self._connections.trace}
        with self._client.stream("POST", address, json=body, extensions=extensions) as response:
            status = response.status_code
            if 300 <= status < 400:
                target = self._without_key(host_of(response.headers.get("location", "")) or "another address")
                raise InputError(
                    self._line(f"answers with a redirect to {target}, which is not followed: set its address")
                )
            if status in (401, 403):
                raise InputError(self._line(f"refuses the key ({status}): {self._about_key()}"))
            text = self._read(response, started)
        if status in (408, 429) or status >= 500:
            raise _Again(f"status {status}{self._message(text)}", wait_of(response.headers.get("retry-after", "")))
        if status == 404:
            raise InputError(
                self._line(f"status 404{self._message(text)}; is the address right, up to /v1, and the model's name?")
            )
        if status == 400 and "max_completion_tokens" in text and limit_field == "max_tokens":
            self._limit_field = "max_completion_tokens"  # newer models of OpenAI
            return self._send(messages)
        if status != 200:
            raise Refused(f"status {status}{self._message(text)}")
        try:
            answer = parse(text, messages)
        except Malformed as error:
            raise _Again(str(error)) from None
        return answer._replace(text=self._without_key(answer.text))

    def _read(self, response: "httpx.Response", started: float) -> str:
        """Returns the body, without the key."""
        content = bytearray()
        for part in response.iter_bytes():
            content += part
            if len(content) > MOST_BYTES:
                raise _Again(f"an answer of more than {MOST_BYTES >> 20} MB")
            if time.monotonic() - started > self._config.timeout_seconds:
                raise _Again(self._too_slow("no complete answer"))
        return self._without_key(content.decode(errors="replace"))

    def _too_slow(self, what: str) -> str:
        fewer, longer = self._setting("concurrent"), self._setting("timeout_seconds")
        return f"{what} within {self._config.timeout_seconds:g} seconds: lower {fewer}, or raise {longer}"

    def _without_key(self, text: str) -> str:
        """Returns the text without the key. Call it for a body and for what is read of it: JSON can escape the key."""
        is_secret = len(self._key) >= SHORTEST_KEY
        return re.sub(re.escape(self._key), INSTEAD, text, flags=re.IGNORECASE) if is_secret else text

    def _message(self, text: str) -> str:
        """Returns `: MESSAGE` of an error's body; empty without text."""
        shown = one_line(" ".join(self._without_key(message_of(text)).split()), SHOWN)
        return f": {shown}" if shown else ""

    def _about_key(self) -> str:
        name = self._config.key_variable
        if self._key:
            return f"set the environment variable {name} to a valid one"
        if not os.environ.get(name):
            return f"set the environment variable {name}, or {self._setting('key_variable')} to the name of another"
        return "no key is sent over http to another machine; use https"

    def _setting(self, field: str) -> str:
        return f"--{field.replace('_', '-')}" if self._prefix == "--" else f"{self._prefix}{field}"

    def _line(self, text: str) -> str:
        return f"{self._prefix}endpoint {self._config.endpoint}: {text}"


def read_key(config: ServerConfig, environment: Mapping[str, str]) -> str:
    """Returns the key for the server; empty if none is set, or if it would be sent unencrypted to another machine."""
    assert config.endpoint is not None
    if config.endpoint.startswith("http:") and not is_loopback(config.endpoint):
        return ""
    key = environment.get(config.key_variable, "").strip()
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise InputError(
            f"{config.key_variable}: the key in this environment variable has spaces or unusual characters"
        )
    return key


def host_of(address: str) -> str:
    """Returns the host of an address; empty if it has none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def wait_of(header: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float | None:
    """Returns the seconds of a header Retry-After: a number, or a date. None without one that can be read."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            until = parsedate_to_datetime(header)
        except (ValueError, TypeError):
            return None
        seconds = (until.replace(tzinfo=until.tzinfo or UTC) - now()).total_seconds()
    return max(0.0, seconds) if seconds == seconds else None
