"""Exports parts of a finished run into a folder."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from artifacts import files
from artifacts.outside import check_outside
from artifacts.records import Ref
from artifacts.store import Store
from flows.graph.run_schema import recipe_of
from flows.recipes import yaml_layers
from flows.runs.find_model import is_retriever
from flows.serving.engine import PRETRAINED, Engine, check_whole, evaluated_engines, no_finished_run
from pipeline.errors import InputError
from pipeline.export import folder
from pipeline.modeling.encoder_config import EncoderConfig
from tasks.terminal import bar, size

if TYPE_CHECKING:
    from pipeline.export.source import Source
    from pipeline.export.vectors import VectorType

Part = Literal["model", "onnx", "run", "index", "vectors"]
PARTS: tuple[Part, ...] = get_args(Part)
ON_REQUEST: tuple[Part, ...] = ("vectors",)
"""Parts of which others already hold the content: written only if they are named."""
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True)
class Exported:
    recipe: str
    model: str
    parts: list[Part]
    files: dict[str, int]
    """Bytes, by path within the folder."""
    reading: dict[str, int] | None
    """Number of compared texts, and of those that the exported tokenizer reads differently."""
    onnx: dict[str, Any] | None
    milliseconds: dict[str, float] | None
    """Time of a question with torch, float32 and int8."""


@dataclass(frozen=True)
class Exportable:
    """The nodes of a run that an export reads."""

    engine: Engine
    model: str
    suffix: str
    """Suffix of the nodes that encode, index and search with this model."""

    @property
    def is_answering(self) -> bool:
        """Whether `cocondenser search` uses this model."""
        return self.suffix == self.engine.metrics["dense"]

    @property
    def served_index(self) -> str:
        """The node of the exported index."""
        name = f"index-{self.suffix}"
        return self.engine.part(name) if self.is_answering else name

    @property
    def served_collection(self) -> str:
        """The node of the passages in the exported index."""
        return self.engine.part("ingest") if self.is_answering else "ingest"

    @property
    def runs(self) -> dict[str, str]:
        """{name in run/: node}."""
        others = {"bm25": "bm25", **({"rerank": "rerank"} if self.is_answering else {})}
        return {"run": f"search-{self.suffix}"} | {n: node for n, node in others.items() if self.ref(node)}

    def ref(self, node: str) -> Ref | None:
        """The artifact of a node; None if the run has none."""
        return self.engine.run.nodes.get(node)

    def path(self, node: str) -> Path | None:
        ref = self.ref(node)
        return ref.path if ref else None

    def parts(self) -> list[Part]:
        """The parts that the run has."""
        needs = {
            "model": self.model,
            "onnx": self.model,
            "run": f"search-{self.suffix}",
            "index": self.served_index,
            "vectors": self.served_index,
        }
        return [part for part in PARTS if self.ref(needs[part])]

    @property
    def judged_index(self) -> Path | None:
        """The index of the judged passages. None if it is missing: the loss by ONNX is then not measured."""
        path = self.path(f"index-{self.suffix}")
        return path if path and path.exists() else None

    def nodes(self, parts: Sequence[Part]) -> list[str]:
        """The nodes that these parts read. Other nodes may be missing."""
        needs = {
            "model": [self.model, "ingest", "tokens"],
            "onnx": [self.model, "ingest", "tokens", *([f"index-{self.suffix}"] if self.judged_index else [])],
            "run": ["ingest", *self.runs.values()],
            "index": [self.served_index],
            "vectors": [self.served_index, self.served_collection],
        }
        return [*dict.fromkeys(node for part in parts for node in needs[part])]


def choose_model(store: Store, recipe: str | None, model: str | None) -> Exportable:
    """The newest finished run (of a recipe) with its last dense model, or with the node `model`."""
    engine = next(evaluated_engines(store, recipe), None)
    if engine is None:
        raise no_finished_run(store, recipe, "export")
    nodes = engine.run.nodes
    if model is None and engine.metrics["dense"] is None:
        raise InputError(f"the run of {engine.run.name} has no dense retrieval; choose a model with --model")
    pretrained = next((node for node in PRETRAINED if node in nodes), None)
    name = pretrained if model == "pretrained" and pretrained else model or engine.model
    if name not in nodes:
        raise InputError(f"--model {name}: no such node in the run of {engine.run.name}{yaml_layers.hint(name, nodes)}")
    path = nodes[name].path
    if path.exists() and not is_retriever(path):
        known = ", ".join(node for node, ref in nodes.items() if is_retriever(ref.path))
        raise InputError(f"--model {name}: has no retrieval model; these nodes of the run have one: {known}")
    return Exportable(engine, name, "pretrained" if name == pretrained else name)


def export_run(
    store: Store,
    out: Path,
    recipe: str | None,
    model: str | None,
    only: Sequence[str],
    overwrite: bool,
    vector_type: "VectorType" = "float32",
) -> Exported:
    """Writes the folder `out`. Everything that can fail early fails before the first file is written.

    `only`: the parts, empty for all but ON_REQUEST; `vector_type`: of the part `vectors`.
    """
    out = out.resolve()
    files.check_path(out)
    unknown = [name for name in only if name not in PARTS]
    if unknown:
        raise InputError(f"--only {unknown[0]}: no such part; the parts are {', '.join(PARTS)}")
    if vector_type != "float32" and "vectors" not in only:
        raise InputError(f"--{vector_type}: only the part vectors has this option; add --only vectors")
    chosen = choose_model(store, recipe, model)
    parts = [part for part in PARTS if part in (only or {*chosen.parts()}.difference(ON_REQUEST))]
    missing = [part for part in parts if part not in chosen.parts()]
    if missing:
        raise InputError(f"--only {missing[0]}: the run of {chosen.engine.run.name} has none for {chosen.model}")
    if "onnx" in parts:
        _check_packages()
    check_outside(out)
    folder.check_out(out, overwrite)  # before long work
    digests = _check_artifacts(chosen, parts)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        what = "not a folder" if is_file else str(error.strerror).lower()
        raise InputError(f"{error.filename or out}: {what}") from error
    source = _source(chosen, parts)
    _check_room(out.parent, source, parts, vector_type)
    with files.storage_errors(out.parent), folder.whole(out, overwrite) as target:
        figures = _write(source, target, parts, vector_type)
        description = {"recipe": source.recipe, "model": source.model, "parts": parts, "artifacts": digests}
        folder.mark(target, description)
        paths = [path for path in sorted(target.rglob("*")) if path.is_file()]
        sizes = {str(path.relative_to(target)): path.stat().st_size for path in paths}
    return Exported(source.recipe, source.model, parts, sizes, *figures)


def _check_packages() -> None:
    absent = [name for name in ONNX_PACKAGES if find_spec(name) is None]
    if absent:
        raise InputError(
            f"onnx/ needs {' and '.join(absent)}: `pip install 'cocondenser[export]'`; "
            "or export the rest: --only model --only run --only index"
        )


def _check_artifacts(chosen: Exportable, parts: Sequence[Part]) -> dict[str, str]:
    """Checks all files that the parts read. Returns {node: digest}."""
    digests, run = {}, chosen.engine.run
    check_whole(run, "evaluate")
    with bar("check") as progress:
        nodes = chosen.nodes(parts)
        for done, node in enumerate(nodes):
            progress(done, len(nodes), "artifacts")
            check_whole(run, node)
            digests[node] = run.nodes[node].digest
    return digests


def _source(chosen: Exportable, parts: Sequence[Part]) -> "Source":
    from pipeline.evaluate.fusion.fuse import Choice
    from pipeline.export.source import Source, question

    engine, recipe = chosen.engine, recipe_of(chosen.engine.run, "encoder", "encode", "evaluate")
    fused = engine.metrics["fusion"] if chosen.is_answering and "bm25" in chosen.runs else None
    collection = engine.run.nodes["ingest"].path
    example = recipe.get("example_question")
    if not example and {"model", "onnx"} & {*parts}:  # no other part shows one
        example = question(collection)
    return Source(
        recipe=engine.run.name,
        model=chosen.model,
        checkpoint=engine.run.nodes[chosen.model].path,
        encoder=EncoderConfig(**recipe["encoder"]),
        passage_tokens=recipe["encode"]["passage_tokens"],
        dimension=recipe.get("index", {}).get("dimension"),
        collection=collection,
        tokens=engine.run.nodes["tokens"].path,
        relevance=engine.metrics["config"]["relevance"],
        index=chosen.judged_index,
        served=chosen.path(chosen.served_index),
        served_collection=engine.run.nodes[chosen.served_collection].path,
        runs={name: engine.run.nodes[node].path for name, node in chosen.runs.items() if chosen.ref(node)},
        fusion=Choice(fused["method"], fused["weight"]) if fused else None,
        best_three_share=recipe["evaluate"].get("best_three_share", 0),
        reciprocal_k=recipe["evaluate"]["reciprocal_k"],
        question=example or "a question",
        system=chosen.suffix,
        metrics=engine.metrics,
        settings=recipe,
        command=_command(engine.run.name, recipe),
        artifacts={node: ref.digest for node, ref in engine.run.nodes.items()},
    )


def _command(name: str, recipe: dict[str, Any]) -> list[str]:
    """The command that repeats the run. Without settings if the run's recipe has fields of another version."""
    from pydantic import ValidationError

    from flows.recipes.command_line import command
    from flows.recipes.recipe import Recipe

    try:
        return command(Recipe.model_validate(recipe))
    except ValidationError:
        return ["cocondenser", "run", name]


def _check_room(parent: Path, source: "Source", parts: Sequence[Part], vector_type: "VectorType") -> None:
    """Raises InputError if the disk has too little space for index and vectors, which may be very large."""
    from pipeline.export.files import index_files
    from pipeline.export.vectors import table_bytes

    if source.served is None:
        return
    total = 0
    if "index" in parts:
        total += sum((source.served / name).stat().st_size for name in index_files(source.served))
    if "vectors" in parts:
        total += table_bytes(source.served_collection, source.served, vector_type)
    free = shutil.disk_usage(parent).free
    if total > free:
        raise InputError(f"{parent}: {size(total)} needed, but {size(free)} free")


def _write(
    source: "Source", target: Path, parts: Sequence[Part], vector_type: "VectorType"
) -> tuple[dict[str, int] | None, dict[str, Any] | None, dict[str, float] | None]:
    """Writes the parts and the page. Returns (counts of differently tokenized texts, figures of ONNX, its speed)."""
    from pipeline.export.files import write_index, write_runs
    from pipeline.export.page import write_page

    reading = measured = None
    if "model" in parts:
        from pipeline.export.model import differing_inputs, write_model
        from pipeline.export.source import read_sample

        with bar("model") as progress:
            checkpoint, tokens = source.checkpoint, source.passage_tokens
            write_model(checkpoint, target / "model", source.encoder, tokens, source.dimension)
            reading = differing_inputs(source, target / "model", read_sample(source), progress)
    if "onnx" in parts:
        from pipeline.export.onnx_files import write_onnx

        with bar("onnx") as progress:
            measured = write_onnx(source, target / "onnx", progress)
    if "run" in parts:
        with bar("run") as progress:
            write_runs(source, target / "run", progress)
    if "index" in parts:
        with bar("index") as progress:
            write_index(source, target / "index", progress)
    if "vectors" in parts and source.served is not None:
        from pipeline.export.vectors import write_vectors

        with bar("vectors") as progress:
            write_vectors(source.served_collection, source.served, target / "vectors", vector_type, progress)
    figures, speed = (measured.figures, measured.milliseconds) if measured else (None, None)
    write_page(source, target, parts, reading, figures)
    return reading, figures, speed
