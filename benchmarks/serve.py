"""Load on `cocondenser serve-search`: the time of an answer, and answers per second.

    python -m benchmarks.serve --store DIR
    python -m benchmarks.serve --store DIR --clients 1 --clients 32 --seconds 20 --by dense
    python -m benchmarks.serve --store DIR --token

Runs `cocondenser search` once, then starts the server and sends it the collection's dev and test questions over HTTP
from this process. Each client sends its next question when it has the answer to the last one. An answer counts as an
error unless it is complete and belongs to the question. `--token`: the server is one for a team (`--host`). Exit code 1
if a goal is missed.
"""

import asyncio
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from artifacts.store import Store
from flows.deploy.processes import free_port
from flows.graph.selection import store_folder
from flows.serving.engine import By, newest_engine
from pipeline.data.collection import read_queries

GOALS = {
    "search": {"milliseconds": 300},
    "1 client": {"p50": 30, "errors": 1},
    "32 clients": {"seconds_for_300_answers": 1, "errors": 1},
}
"""{what was measured: {figure: its upper limit}}, for a collection of pydocs' size: users notice longer waits."""
START_SECONDS = 300
SECONDS_A_ROUND = 2.0


def main(
    store: Annotated[Path | None, typer.Option()] = None,
    clients: Annotated[list[int] | None, typer.Option()] = None,
    seconds: Annotated[float, typer.Option()] = 10.0,
    by: Annotated[By | None, typer.Option()] = None,
    k: Annotated[int, typer.Option("-k")] = 10,
    where: Annotated[str | None, typer.Option()] = None,
    token: Annotated[bool, typer.Option("--token")] = False,
) -> None:
    """Prints a line of JSON for `cocondenser search` and for each number of clients."""
    engine = newest_engine(Store(store_folder(store)), None, by)
    questions = [query.text for query in read_queries(engine.collection, ["dev", "test"])]
    random.Random(0).shuffle(questions)
    request = {"k": k, "by": by, "where": where}
    found = {"search": searched(store_folder(store), by, questions[0])}
    secret = secrets.token_urlsafe(32) if token else None
    with served(store_folder(store), by, secret) as port:
        asyncio.run(load(port, 8, 3.0, questions, request, secret))  # does not count: Java still compiles
        for number in clients or [1, 32]:
            name = f"{number} client{'s' * (number > 1)}"
            found[name] = asyncio.run(load(port, number, seconds, questions, request, secret))
    for name, figures in found.items():
        print(json.dumps({"measured": name, **figures}))
    if said := missed(found):
        raise SystemExit("\n".join(said))


def missed(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Returns a line for each goal that is missed."""
    said = []
    for name in found.keys() & GOALS.keys():
        for figure, goal in GOALS[name].items():
            if found[name][figure] >= goal:
                said.append(f"missed: {name}: {figure} {found[name][figure]}, not below {goal}")
    return sorted(said)


def searched(store: Path, by: str | None, question: str) -> dict[str, float]:
    """Returns the figures of one `cocondenser search`."""
    command = [sys.executable, "-m", "flows.cli", "search", question, "--store", str(store), "--json"]
    ended = subprocess.run([*command, *(["--by", by] if by else [])], stdout=subprocess.PIPE, text=True, check=True)
    given = json.loads(ended.stdout)
    return {name: given[name] for name in ("milliseconds", "loading_milliseconds")}


@contextmanager
def served(store: Path, by: str | None, token: str | None = None) -> Iterator[int]:
    """Yields the port of a server in its own process. `token`: it is one for a team, with this token."""
    port = free_port()
    command = [sys.executable, "-m", "flows.cli", "serve-search", "--store", str(store), "--port", str(port)]
    with tempfile.NamedTemporaryFile("w") as file:
        if token is not None:
            file.write(token)
            file.flush()
            command += ["--host", "127.0.0.1", "--token-file", file.name]
        server = subprocess.Popen([*command, *(["--by", by] if by else [])], stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + START_SECONDS
            while not answers(port, token):
                if server.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"the server does not start: {' '.join(command)}")
                time.sleep(0.2)
            yield port
        finally:
            server.terminate()
            server.wait()


def answers(port: int, token: str | None) -> bool:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


async def load(
    port: int,
    clients: int,
    seconds: float,
    questions: Sequence[str],
    request: dict[str, Any],
    token: str | None = None,
) -> dict[str, float]:
    """Returns the figures of `clients` that send questions for `seconds`; milliseconds as a client sees them."""
    took: list[tuple[float, float]] = []
    errors = 0
    asked = cycle(questions)
    begun = time.perf_counter()

    async def client() -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() - begun < seconds:
            question = next(asked)
            start = time.perf_counter()
            try:
                found = await post(reader, writer, {**request, "q": question}, token)
                errors += found.get("question") != question or "answers" not in found
            except (OSError, ValueError, asyncio.IncompleteReadError):
                errors += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            took.append((start, 1000 * (time.perf_counter() - start)))
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    spent = time.perf_counter() - begun
    milliseconds = np.array([one for _, one in took])
    rounds = np.bincount([int((start - begun) / SECONDS_A_ROUND) for start, _ in took])[
        : int(seconds // SECONDS_A_ROUND)
    ]
    return {
        "answers": len(took),
        "errors": errors,
        "p50": round(float(np.percentile(milliseconds, 50)), 1),
        "p99": round(float(np.percentile(milliseconds, 99)), 1),
        "answers_a_second": round(len(took) / spent, 1),
        "seconds_for_300_answers": round(300 * spent / max(len(took), 1), 3),
        "best_round": round(float(rounds.max(initial=0)) / SECONDS_A_ROUND, 1),
        "load_average": round(os.getloadavg()[0], 1),
    }


async def post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, value: dict[str, Any], token: str | None = None
) -> dict[str, Any]:
    """Sends one request on an open connection, without a client library, which would need as long as the server."""
    body = json.dumps(value).encode()
    bearer = "" if token is None else f"Authorization: Bearer {token}\r\n"
    head = f"POST /api/search HTTP/1.1\r\nHost: localhost\r\n{bearer}Content-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
    length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
    return json.loads(await reader.readexactly(length))


if __name__ == "__main__":
    typer.run(main)
