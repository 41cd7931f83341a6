"""report.html: one page with the tables, the pictures, questions and what it all was made from."""

import itertools
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, JsonValue

from pipeline.config import Config, Seed
from pipeline.data.stored import read_json
from pipeline.evaluate.short_tables import shallow_notes, way_of
from pipeline.formatting import counted, estimate_text
from pipeline.report import results
from pipeline.report.lineage import Step, notices, summary
from pipeline.report.published import Published
from pipeline.report.trainings import architecture, history, shown_counts, training
from pipeline.runtime.work import Metrics, Work
from pipeline.templates import environment, styles

if TYPE_CHECKING:
    from pipeline.evaluate.compare import Figures
    from pipeline.report.figures import Picture
    from pipeline.report.results import Part

ATTENTION = "Entropy of [CLS]'s attention"


class ReportConfig(Config):
    title: str = Field(min_length=1)
    """The page's heading, such as the recipe's name."""
    published: list[Published]
    """The papers' figures for exactly this recipe, shown beside ours. A recipe that extends another has none of its."""
    examples: int = Field(ge=0)
    """Questions picked at random, shown with the answers of BM25 and of the dense retriever."""
    changes: int = Field(ge=0)
    """Questions shown of those that gained most from BM25 to the dense retriever, and of those that lost most."""
    answers: int = Field(ge=1)
    """Answers shown for each question and system, as far as the evaluation kept them (`evaluate.answers`)."""
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
    **checkpoints: Path | None,
) -> Metrics:
    """Write `report.html` and its pictures as `pictures/NAME.png`, from an evaluation and the checkpoints' histories.

    `configuration`: what the recipe computes, without paths. `command`: the words of the command that computes it
    again. Equal inputs, these and `lineage` among them, give equal bytes. The page needs no other file and no network.
    Text of the collection is escaped by the template.
    """
    from pipeline.report import examples
    from pipeline.report.figures import write_pngs

    metrics = read_json(evaluate / "metrics.json")
    found = results.parts(metrics, config.published)
    figures = examples.places(evaluate, found[0])
    pair = examples.main_pair(metrics, figures)
    pictures = draw(metrics, found[0], {name: history(folder) for name, folder in checkpoints.items()}, figures, pair)
    if attention is not None:
        pictures["analyses"].append(attention_picture(attention))
    questions = chosen(config, metrics, found[0], figures, pair, (collection, evaluate))
    page = render(
        title=config.title,
        metrics=metrics,
        lead=found[0],
        headline=results.headline(metrics, found[0]),
        verdict=results.verdict(metrics, found[0]),
        tables=[results.table(metrics, part) for part in found],
        pair=None if pair is None else [metrics["labels"][name] for name in pair],
        pictures=pictures,
        neighbours=bool(metrics["splits"][found[0].split].get("neighbours")),
        questions=questions,
        counts=shown_counts(read_json(collection / "ingest.json")),
        models={training(n): shape for n, folder in checkpoints.items() if (shape := architecture(folder))},
        notices=notices(lineage),
        lineage=summary(lineage) if lineage else None,
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
    pages.filters["svg"] = Markup  # of pictures alone, which hold no text of the collection
    pages.filters["counted"] = counted
    pages.filters["colour"] = colour_of
    pages.filters["estimate"] = estimate_text
    pages.filters["shallow_notes"] = shallow_notes
    pages.filters["way_of"] = lambda row, metrics: way_of(metrics, row)
    return pages.get_template("report.html").render(css=styles("palette.css", "report.css"), **values)


def draw(
    metrics: Mapping[str, Any],
    part: "Part",
    histories: Mapping[str, dict[str, list[float]] | None],
    figures: "Figures",
    pair: tuple[str, str] | None,
) -> "dict[str, list[Picture]]":
    """The pictures by the page's section."""
    from pipeline.report.differences import per_question
    from pipeline.report.figures import curves, ladder
    from pipeline.report.neighbours import nb_recall

    labels = metrics["labels"]
    ladders = [
        ladder(
            f"ladder-{results.in_file_name(measure)}",
            {system: found[measure] for system, found in part.systems.items()},
            labels,
            results.HEADS.get(measure, measure),
        )
        for measure in part.columns[:3]
    ]
    analyses = []
    if pair is not None:
        before, after = pair
        both = [(figures[before][q], figures[after][q]) for q in figures[after] if q in figures[before]]
        title, of = f"{labels[after]} against {labels[before]}", "1 / rank" if part.kind == "judged" else "hits"
        analyses.append(per_question("questions", [b - a for a, b in both], title, f"difference in {of}"))
    if neighbours := metrics["splits"][part.split].get("neighbours"):
        analyses.append(nb_recall("nb-recall", neighbours, labels, "Neighbours found before"))
    return {
        "ladders": ladders,
        "trainings": [curves(f"training-{name}", h, training(name)) for name, h in histories.items() if h],
        "analyses": analyses,
    }


def attention_picture(folder: Path) -> "Picture":
    from pipeline.report.histories import entropies
    from pipeline.report.panels import entropy_panels

    return entropy_panels("attention", {"": entropies(folder)}, ATTENTION)


def chosen(
    config: ReportConfig,
    metrics: Mapping[str, Any],
    part: "Part",
    figures: "Figures",
    pair: tuple[str, str] | None,
    folders: tuple[Path, Path],
) -> dict[str, list[dict[str, Any]]]:
    """The questions that are shown: those that gained most, that lost most, and some at random."""
    from pipeline.report import examples

    systems = pair or [name for name in ("bm25", metrics["dense"]) if name in figures]
    gained, lost = examples.changed(figures, pair, config.changes)
    picked = examples.picked(figures, config.examples, config.seed)
    return {
        name: examples.shown(metrics, part, query_ids, systems, figures, folders, config.answers)
        for name, query_ids in {"gained": gained, "lost": lost, "random": picked}.items()
    }


def as_yaml(configuration: Mapping[str, JsonValue]) -> Sequence[tuple[str, str]]:
    """(stage, its fields as YAML), in the recipe's order; what is no stage comes first, as `recipe`."""
    import yaml

    stages = {name: value for name, value in configuration.items() if isinstance(value, dict)}
    rest = {name: value for name, value in configuration.items() if name not in stages}
    return [
        (name, yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100).strip())
        for name, value in ({"recipe": rest} | stages).items()
        if value
    ]
