"""Answers questions over HTTP, as a page and as JSON: for this machine only, or for others with a token."""

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, StrictInt

from flows.serving.access import Access, require_token
from flows.serving.answers import answers_as_json
from flows.serving.ask import check_question, question_notices
from flows.serving.engine import By
from flows.serving.follow import Follow, following
from flows.serving.http import HOSTS, RootPath, checked, json_line, page_application, read_body, read_page, run_server
from flows.serving.metrics import MEDIA_TYPE, CountErrors, ServerMetrics
from flows.serving.question import Question, Session
from flows.serving.search_log import SearchLog
from flows.serving.service import CurrentService, Service, open_service
from pipeline.errors import InputError

PAGE = Path(__file__).parent / "page"


class SearchRequest(BaseModel):
    """A request; the fields have the same names in the address and in JSON."""

    model_config = ConfigDict(extra="forbid")

    q: str
    k: int | None = None
    by: By | None = None
    where: str | None = None
    rerank: int | None = None
    """Passages that are reranked, at most as many as the server says; None: as many, 0: none."""


class ClickRequest(BaseModel):
    """A click on an answer, while searches are recorded."""

    model_config = ConfigDict(extra="forbid")

    search: str
    """The id in the answer to the search."""
    position: StrictInt
    """Rank of the answer."""


def serve(
    session: Session,
    listener: socket.socket,
    on_ready: Callable[[], None] = lambda: None,
    log: SearchLog | None = None,
    access: Access | None = None,
    tls: ssl.SSLContext | None = None,
    follow: Follow | None = None,
) -> None:
    """Answers on a listening socket until SIGINT or SIGTERM. Calls `on_ready` once the end by a signal is clean.

    Call it in the main thread. `log`: records questions, results and clicks. `access`: requires a token; None: for
    this machine only. `follow`: replaces the run by newer ones.
    """
    metrics = ServerMetrics()
    with ExitStack() as first:
        service = first.enter_context(open_service(session, metrics))
        current = CurrentService(service)
        app = application(current, log, access, metrics)
        if follow is None:
            run_server(app, listener, on_ready, tls)
            return
        follow.first.push(first.pop_all())
        with following(follow, current, partial(open_service, metrics=metrics)):
            run_server(app, listener, on_ready, tls)


def application(
    current: CurrentService,
    log: SearchLog | None = None,
    access: Access | None = None,
    metrics: ServerMetrics | None = None,
) -> FastAPI:
    """The page at /, its JSON below /api. With `access` also /login, /healthz and /metrics."""
    app = page_application(*read_page(PAGE, "search"), HOSTS if access is None else access.hosts)
    metrics = metrics or ServerMetrics()

    async def answer(request: SearchRequest) -> Response:
        with current.answering() as service:
            return await answer_from(service, request)

    async def answer_from(service: Service, request: SearchRequest) -> Response:
        started = time.perf_counter()
        session = service.session
        k = service.description["k"] if request.k is None else request.k
        rerank = service.description["rerank"] if request.rerank is None else request.rerank
        requested = Question(request.q, k, request.by or session.engine.by, request.where, rerank)
        question = check_question(session, requested)
        metrics.questions.labels(question.by).inc()
        mask = None
        if question.where is not None and (mask := session.where.kept(question.where)) is None:
            mask = await service.masks.answer(question.where)
        answers = await service.batches.answer((question, mask))
        seconds = time.perf_counter() - started
        metrics.seconds.labels(question.by).observe(seconds)
        notices = question_notices(session, question)
        result = answers_as_json(session.engine, question, answers, 1000 * seconds, notices)
        return json_line(result if log is None else {"search": log.search(question, answers), **result})

    @app.get("/api/search")
    async def search(request: Request) -> Response:
        for name in SearchRequest.model_fields:
            if len(request.query_params.getlist(name)) > 1:
                raise InputError(f"{name}: appears twice")
        return await answer(checked(SearchRequest, lambda: SearchRequest.model_validate({**request.query_params})))

    @app.post("/api/search")
    async def search_body(request: Request) -> Response:
        return await answer(await read_body(request, SearchRequest))

    if log is not None:

        @app.post("/api/click")
        async def click(request: Request) -> Response:
            clicked = await read_body(request, ClickRequest)
            log.click(clicked.search, clicked.position)
            return json_line({})

    @app.get("/api")
    async def describe() -> Response:
        return json_line({**current.service.description, "recorded": log is not None})

    if access is not None:

        @app.get("/metrics")
        async def show_metrics() -> Response:
            return Response(metrics.text(), media_type=MEDIA_TYPE)

        require_token(app, access)
        app.add_middleware(CountErrors, metrics=metrics)
        if access.root_path:
            app.add_middleware(RootPath, path=access.root_path)
    return app
