"""Writes report.html: one page with tables, pictures, example questions and lineage."""

import itertools
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, JsonValue

from pipeline.config import Config, Seed
from pipeline.data.stored import read_json
from pipeline.evaluate.reranked import RERANKED, rerank_warning
from pipeline.evaluate.tables.dimensions_table import dimensions_table
from pipeline.evaluate.tables.short_tables import NO_QUESTIONS, shallow_notes, way_of
from pipeline.formatting import counted, estimate_text
from pipeline.report import results
from pipeline.report.lineage import build_summary, notices
from pipeline.report.results import Published
from pipeline.report.trainings import architecture, history, shown_counts, training
from pipeline.runtime.lineage import Step
from pipeline.runtime.work import Metrics, Work
from pipeline.templates import environment, styles

if TYPE_CHECKING:
    from pipeline.bm25.highlights import Highlighter
    from pipeline.evaluate.compare import Figures
    from pipeline.report.figures import Picture
    from pipeline.report.results import SplitMeasures

ATTENTION = "Entropy of [CLS]'s attention"


class ReportConfig(Config):
    title: str = Field(min_length=1)
    """The page's heading, such as the recipe's name."""
    published: list[Published]
    """The papers' figures for exactly this recipe, shown next to ours. A recipe does not inherit another's."""
    examples: int = Field(ge=0)
    """Number of random questions, shown with the answers of BM25 and of the dense retriever."""
    changes: int = Field(ge=0)
    """Number of questions with the largest gains from BM25 to the dense retriever, and with the largest losses."""
    answers: int = Field(ge=1)
    """Answers shown per question and system, at most those that the evaluation stores (`evaluate.answers`)."""
    seed: Seed
    """Seed that picks the examples."""


def report(
    config: ReportConfig,
    collection: Path,
    evaluate: Path,
    configuration: Mapping[str, JsonValue],
    command: Sequence[str],
    work: Work,
    lineage: Sequence[Step] = (),
    attention: Path | None = None,
    bm25: Path | None = None,
    others: Path | None = None,
    dimensions: Path | None = None,
    **checkpoints: Path | None,
) -> Metrics:
    """Writes `report.html` and its pictures as `pictures/NAME.png`, from an evaluation and the checkpoints' histories.

    `others`: the comparison on other collections; `dimensions`: that of the vectors' prefixes. The analyser of `bm25`
    decides which words of the examples are highlighted.
    `configuration`: what the recipe computes, without paths. `command`: the words of the command that computes it
    again. Equal inputs, these and `lineage` among them, give equal bytes. The page needs no other file and no network.
    Text of the collection is escaped by the template.
    """
    from pipeline.bm25.highlights import open_highlighter
    from pipeline.report import examples
    from pipeline.report.figures import write_pngs

    metrics = read_json(evaluate / "metrics.json")
    parts = results.split_measures(metrics, config.published)
    lead = parts[0] if parts else None
    figures = examples.example_figures(evaluate, lead) if lead else {}
    pair = examples.main_pair(metrics, figures)
    pictures = draw(metrics, lead, {name: history(folder) for name, folder in checkpoints.items()}, figures, pair)
    if attention is not None:
        pictures["analyses"].append(attention_picture(attention))
    questions: dict[str, list[dict[str, Any]]] = {"gained": [], "lost": [], "random": []}
    if lead:
        with open_highlighter(bm25) as highlighter:
            questions = chosen(config, metrics, lead, figures, pair, (collection, evaluate), highlighter)
    page = render(
        title=config.title,
        metrics=metrics,
        lead=lead,
        no_questions=NO_QUESTIONS,
        headline=results.headline(metrics, lead) if lead else [],
        verdict=results.verdict(metrics, lead) if lead else None,
        tables=[results.table(metrics, part) for part in parts],
        pair=None if pair is None else [metrics["labels"][name] for name in pair],
        others=None if others is None else results.others_values(read_json(others / "others.json")),
        dimensions=None if dimensions is None else dimensions_table(read_json(dimensions / "dimensions.json")),
        pictures=pictures,
        neighbours=bool(lead and metrics["splits"][lead.split].get("neighbours")),
        questions=questions,
        counts=shown_counts(read_json(collection / "ingest.json")),
        models={training(n): shape for n, folder in checkpoints.items() if (shape := architecture(folder))},
        notices=[*notices(lineage), *((RERANKED, line) for line in [rerank_warning(metrics)] if line)],
        lineage=build_summary(lineage) if lineage else None,
        command=shlex.join(command),
        changed=[word for flag, word in itertools.pairwise(command) if flag == "--set"],
        configuration=as_yaml(configuration),
    )
    (work.out / "report.html").write_text(page, encoding="utf-8", newline="\n")
    drawn = [picture for section in pictures.values() for picture in section]
    write_pngs(work.out, drawn)
    work.progress(1, 1, "pages")
    return {"examples": len(questions["random"]), "pictures": len(drawn), "bytes": len(page.encode())}


def render(**values: Any) -> str:
    from markupsafe import Markup

    from pipeline.report.figures import colour_of

    pages = environment()
    pages.filters["svg"] = Markup  # only for pictures, which contain no text of the collection
    pages.filters["counted"] = counted
    pages.filters["colour"] = colour_of
    pages.filters["estimate"] = estimate_text
    pages.filters["shallow_notes"] = shallow_notes
    pages.filters["way_of"] = lambda row, metrics: way_of(metrics, row)
    return pages.get_template("report.html").render(css=styles("palette.css", "report.css", "examples.css"), **values)


def draw(
    metrics: Mapping[str, Any],
    part: "SplitMeasures | None",
    histories: Mapping[str, dict[str, list[float]] | None],
    figures: "Figures",
    pair: tuple[str, str] | None,
) -> "dict[str, list[Picture]]":
    """Returns the pictures by section of the page. `part`: None if there were no questions to measure with."""
    from pipeline.report.analyses import gains_picture, nb_recall_picture
    from pipeline.report.figures import curves, ladder

    labels = metrics["labels"]
    systems = part.systems if part else {}
    ladders = [
        ladder(
            f"ladder-{results.in_file_name(measure)}",
            {system: by_measure[measure] for system, by_measure in systems.items()},
            labels,
            results.HEADS.get(measure, measure),
        )
        for measure in (part.columns[:3] if part else ())
    ]
    analyses = []
    if part and pair is not None:
        before, after = pair
        both = [(figures[before][q], figures[after][q]) for q in figures[after] if q in figures[before]]
        title, of = f"{labels[after]} against {labels[before]}", "1 / rank" if part.kind == "judged" else "hits"
        analyses.append(gains_picture("questions", [b - a for a, b in both], title, f"difference in {of}"))
    if part and (neighbours := metrics["splits"][part.split].get("neighbours")):
        analyses.append(nb_recall_picture("nb-recall", neighbours, labels, "Neighbours found before"))
    return {
        "ladders": ladders,
        "trainings": [curves(f"training-{name}", h, training(name)) for name, h in histories.items() if h],
        "analyses": analyses,
    }


def attention_picture(folder: Path) -> "Picture":
    from pipeline.report.panels import entropy_panels
    from pipeline.report.trainings import entropies

    return entropy_panels("attention", {"": entropies(folder)}, ATTENTION)


def chosen(
    config: ReportConfig,
    metrics: Mapping[str, Any],
    part: "SplitMeasures",
    figures: "Figures",
    pair: tuple[str, str] | None,
    folders: tuple[Path, Path],
    highlighter: "Highlighter",
) -> dict[str, list[dict[str, Any]]]:
    """Returns the shown questions: those with the largest gains, the largest losses, and random ones."""
    from pipeline.report import examples

    systems = pair or [name for name in ("bm25", metrics["dense"]) if name in figures]
    gained, lost = examples.changed(figures, pair, config.changes)
    picked = examples.picked(figures, config.examples, config.seed)
    return {
        name: examples.example_values(metrics, part, query_ids, systems, figures, folders, config.answers, highlighter)
        for name, query_ids in {"gained": gained, "lost": lost, "random": picked}.items()
    }


def as_yaml(configuration: Mapping[str, JsonValue]) -> Sequence[tuple[str, str]]:
    """Returns (stage, its fields as YAML), in the recipe's order; fields outside stages come first, as `recipe`."""
    import yaml

    stages = {name: value for name, value in configuration.items() if isinstance(value, dict)}
    rest = {name: value for name, value in configuration.items() if name not in stages}
    return [
        (name, yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100).strip())
        for name, value in ({"recipe": rest} | stages).items()
        if value
    ]
