"""The page of `cocondenser judge`, for this machine only."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from flows.judging.judging import Judging
from flows.judging.record import HIGHEST
from flows.serving.http import json_line, page_application, read_body, read_page, run_server

PAGE = Path(__file__).parent / "page"


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid")


class GradeForm(Form):
    query_id: str
    passage_id: str | None
    """None: all passages of the question that have no grade."""
    grade: Annotated[int, Field(strict=True, ge=0, le=HIGHEST)]


class SkipForm(Form):
    query_id: str


class NoteForm(Form):
    query_id: str
    passage_id: str
    text: str


class QuestionForm(Form):
    text: str


def serve(judging: Judging, labels: dict[str, str], listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Answers on a listening socket until SIGINT or SIGTERM. Call it in the main thread.

    `labels`: {system: its name in tables}.
    """
    run_server(application(judging, labels), listener, on_ready)


def application(judging: Judging, labels: dict[str, str]) -> FastAPI:
    """The page at /, its JSON below /api."""
    app = page_application(*read_page(PAGE, "judge"))

    async def changed(change: Callable[..., dict[str, Any]], *values: Any) -> Response:
        return json_line(await run_in_threadpool(change, *values))

    @app.get("/api/state")
    async def state() -> Response:
        return await changed(judging.state)

    @app.post("/api/grade")
    async def grade(request: Request) -> Response:
        form = await read_body(request, GradeForm)
        return await changed(judging.grade, form.query_id, form.passage_id, form.grade)

    @app.post("/api/skip")
    async def skip(request: Request) -> Response:
        return await changed(judging.skip, (await read_body(request, SkipForm)).query_id)

    @app.post("/api/undo")
    async def undo(request: Request) -> Response:
        await read_body(request, Form)
        return await changed(judging.undo)

    @app.post("/api/note")
    async def note(request: Request) -> Response:
        form = await read_body(request, NoteForm)
        return await changed(judging.note, form.query_id, form.passage_id, form.text)

    @app.post("/api/question")
    async def question(request: Request) -> Response:
        return await changed(judging.ask, (await read_body(request, QuestionForm)).text)

    @app.get("/api/comparison")
    async def comparison() -> Response:
        """Shows which system is better, and so ends the blindness of the judge. Only a button requests it."""
        return json_line({**judging.comparison().as_json(), "labels": labels})

    return app
