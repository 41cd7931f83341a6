"""What the tables of results call systems, and how they write figures."""

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from pipeline.evaluate.shallow import shallow
from pipeline.formatting import counted, estimate_text, p_text
from pipeline.notices import first

if TYPE_CHECKING:
    from rich.table import Table

LABELS = {
    "model": "existing model",
    "pretrained": "pre-trained only",
    "adapted": "adapted without questions",
    "rerank": "reranked",
}
"""{one of the flow's own runs: its name in tables}; BM25 is in `FIRST_STAGES`, `label` names the numbered stages."""
FIRST_STAGES = {"bm25": "BM25", "weights": "first stage (weights)", "run": "first stage (run file)"}
"""Names of the first stage by the kind of its scores (bm25.json)."""
TABLE = {"RR@10": "MRR@10", "nDCG@10": "nDCG@10", "R@100": "R@100"}
"""Measures of the short table, and the usual names of their means."""
HITS = {"hits@5": "hits@5", "hits@20": "hits@20", "hits@100": "hits@100"}
"""Those of questions with answers, as the papers print them for NQ and TriviaQA."""

SHORT = {**TABLE, "hits@20": "hits@20"}
"""Measures of a row a run."""
METHODS = {
    "reciprocal_rank": "reciprocal ranks",
    "weighted_sum": "min-max-normalised scores",
    "z_score_sum": "z-normalised scores",
}
"""What a fusion adds."""
NO_DEV = "no dev questions"
NOTHING_CHOSEN = f"{NO_DEV}, so nothing was chosen by them"
NO_QUESTIONS = (
    "Nothing is measured: the collection has no dev or test question with a relevant passage or answers. "
    "`cocondenser judge` makes some of your own questions, judged by you or by a language model (docs/judging.md)."
)

Systems = Mapping[str, Mapping[str, Mapping[str, float]]]
"""{system: {measure: {mean, low, high}}}."""


def label(name: str) -> str:
    """What tables call a run: `stage 1`, `stage 2, round 3`; another system by its own name."""
    stage, _, number = name.removeprefix("stage").partition("-")
    if name.startswith("stage") and stage.isdigit():
        return f"stage {stage}, round {number}" if number else f"stage {stage}"
    return LABELS.get(name, name)


def shown_split(metrics: Mapping[str, Any]) -> str | None:
    """The split that tables show: test where there is one; None if there were no questions to measure with."""
    return next((split for split in ("test", "dev") if split in metrics["splits"]), None)


def on_dev(metrics: Mapping[str, Any]) -> bool:
    """Whether anything was measured on dev; otherwise nothing can be chosen there."""
    return "dev" in metrics["splits"]


def default_system(metrics: Mapping[str, Any]) -> str:
    """Returns the system that answers by default: the fusion, unless dev proves one of its runs better; without a
    fusion the dense run, or BM25."""
    if metrics["winner_on_dev"]:
        return str(metrics["winner_on_dev"])
    return "fusion" if metrics["fusion"] else "bm25" if metrics["dense"] is None else "dense"


def fusion_of(metrics: Mapping[str, Any], row: str) -> Mapping[str, Any] | None:
    """Returns {method, weight, why, chosen_on_dev} of the fusion `row`; None for another row."""
    chosen = metrics["fusion"] if row == "fusion" else metrics.get("fusions", {}).get(row)
    return cast("Mapping[str, Any] | None", chosen)


def way_of(metrics: Mapping[str, Any], row: str) -> str:
    """How the fusion `row` combines its runs: `z-normalised scores, the first with weight 0.5 (default: ...)`."""
    chosen = fusion_of(metrics, row)
    assert chosen is not None
    return fusion_text(
        chosen["method"], chosen["weight"], chosen.get("why"), metrics.get("config", {}).get("reciprocal_k")
    )


def fusion_text(method: str, weight: float, why: str | None, reciprocal_k: float | None) -> str:
    """As `way_of`. Older versions of the evaluation have no `why`."""
    k = f" with k = {reciprocal_k:g}" if method == "reciprocal_rank" and reciprocal_k is not None else ""
    return f"{METHODS[method]}{k}, the first with weight {weight:.3g}{f' ({why})' if why else ''}"


def tables_of(metrics: Mapping[str, Any], split: str) -> list[tuple[Systems, Mapping[str, str]]]:
    """The short tables of a split: by judgements, by answers, whichever there are; and the columns of each."""
    part = metrics["splits"][split]
    found = [(part["systems"], TABLE), (part.get("answers", {}).get("systems", {}), HITS)]
    return [(systems, columns) for systems, columns in found if systems]


def headed_tables(metrics: Mapping[str, Any]) -> list[tuple[list[str], list[list[str]]]]:
    """Returns (heading, rows) of the shown split's short tables: a row has the system's label, then each mean
    with its interval. Empty without a split."""
    split = shown_split(metrics)
    if split is None:
        return []
    part = metrics["splits"][split]
    found = []
    for systems, columns in tables_of(metrics, split):
        of, kind = (part["answers"], " with answers") if columns is HITS else (part, "")
        rows = [
            [metrics["labels"][name], *(estimate_text(figures[measure]) for measure in columns)]
            for name, figures in systems.items()
        ]
        found.append(([f"{split}, {counted(of['questions'], 'questions')}{kind}", *columns.values()], rows))
    return found


def shallow_notes(
    metrics: Mapping[str, Any], split: str, measures: Iterable[str], systems: Iterable[str] | None = None
) -> list[str]:
    """A line for each of the `systems` (None: all) whose lists are shorter than one of its `measures` looks."""
    cuts = metrics["splits"].get(split, {}).get("cut_at", {})
    names = cuts if systems is None else systems
    found = {metrics["labels"].get(name, name): shallow(cuts.get(name), measures) for name in names}
    return [f"{label}: {text}" for label, text in found.items() if text]


def all_notes(metrics: Mapping[str, Any]) -> list[str]:
    """`notes`, and of every measure of every split where it looks deeper than a list goes; a line each."""
    found = notes(metrics)
    for split, part in metrics["splits"].items():
        measures = dict.fromkeys(m for t in (part, part.get("answers", part)) for s in t["systems"].values() for m in s)
        found += [f"{split}: {line}" for line in shallow_notes(metrics, split, measures)]
    return found


def notes(metrics: Mapping[str, Any]) -> list[str]:
    """Returns lines for readers of the short tables about what is not measured or counts as zero."""
    split = shown_split(metrics)
    if split is None:
        return [NO_QUESTIONS, *fusion_notes(metrics, ["fusion"])]
    part = metrics["splits"][split]
    measures = [measure for _, columns in tables_of(metrics, split) for measure in columns]
    lines = shallow_notes(metrics, split, measures)
    for name, fewest in part.get("fewest_documents", {}).items():
        lines.append(
            f"{metrics['labels'][name]}: lists are cut by passages, and hold at least {counted(fewest, 'documents')}"
        )
    for found in (part, part.get("answers", {})):
        for name, count in found.get("questions_without_results", {}).items():
            if count and (found is part or count != part.get("questions_without_results", {}).get(name)):
                which = "questions" if found is part else "questions with answers, but"
                lines.append(f"{metrics['labels'][name]}: {which} without results, each counted as zero: {count:,}")
    if part["systems"] and part.get("questions_without_relevant"):
        lines.append(
            f"questions left out because they have no relevant passage: {part['questions_without_relevant']:,}"
        )
    lines += fusion_notes(metrics, {*part["systems"], *part.get("answers", part)["systems"]})
    for name, counts in metrics.get("systems", {}).items():
        for what in ("other questions", "unknown passages"):
            key = f"rows_of_{what.replace(' ', '_')}"
            if count := counts.get(key):
                examples = first(counts.get("examples", {}).get(key, ()))
                lines.append(f"{name}: rows of {what}, left out: {count:,} of {counts['rows']:,}{examples}")
    return lines


def fusion_notes(metrics: Mapping[str, Any], systems: Container[str]) -> list[str]:
    """Returns how each fusion among `systems` combines its runs; a line each."""
    names = [name for name in metrics["labels"] if name in systems and fusion_of(metrics, name)]
    return [f"{metrics['labels'][name]}: {way_of(metrics, name)}" for name in names]


def tables(metrics: Mapping[str, Any]) -> "list[Table]":
    """Returns the short tables, ready to print."""
    return [
        printed(f"{title.replace(', ', ': ', 1)}, mean [95 % interval]", columns, rows)
        for (title, *columns), rows in headed_tables(metrics)
    ]


def printed(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> "Table":
    """Returns a table, ready to print. `columns`: after the first, which has the rows' names."""
    from rich.markup import escape
    from rich.table import Table

    shown = Table(title=title, title_justify="left")
    shown.add_column("", min_width=10)
    for name in columns:
        shown.add_column(name, justify="right")
    for row in rows:
        shown.add_row(*map(escape, row))
    return shown


DIFFERENCE = ("p (Holm)", "wins", "ties", "losses")
"""Columns of tables of differences after the difference itself."""


def difference_texts(figures: Mapping[str, float]) -> list[str]:
    """Returns the difference with its interval, then DIFFERENCE, from {mean, low, high, p_holm, wins, ties, losses}."""
    counts = (f"{figures[key]:,}" for key in ("wins", "ties", "losses"))
    return [estimate_text(figures), p_text(figures["p_holm"]), *counts]
