"""The results of an ablation: a table of all rows with intervals and tests, and a page with curves."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.ablation.config import AblationConfig
from pipeline.runtime.work import Metrics, Work

if TYPE_CHECKING:
    from pipeline.ablation.data import AblationData


def ablation(config: AblationConfig, collection: Path, work: Work, **inputs: Path | None) -> Metrics:
    """Writes the files of `render`.

    `inputs`: `evaluate_n` of each cell n; for cells with curves also `stage1_n` (a checkpoint with its history) and
    `attention_n`. Raises InputError if a cell was measured on other questions than the first.
    """
    from pipeline.ablation import data as ablation_data

    return render(ablation_data.collect(config, collection, inputs, work.progress), work.out)


def render(data: "AblationData", out: Path) -> Metrics:
    """Writes `table.json`, `table.csv`, `table.md`, `tests.json`, `gains.json`, `ablation.html`, its
    `pictures/NAME.png`, and the data behind them (pipeline/ablation/files.py) into an existing folder."""
    import pandas as pd

    from pipeline.ablation import files, table
    from pipeline.ablation import page as ablation_page
    from pipeline.ablation.gains import gains
    from pipeline.report.figures import write_pngs

    files.write_data(data, out)
    figures, tests, all_gains = table.figures(data), table.tests(data), gains(data)
    (out / "table.json").write_text(_json(figures), encoding="utf-8")
    (out / "tests.json").write_text(_json(tests), encoding="utf-8")
    (out / "gains.json").write_text(_json(all_gains), encoding="utf-8")
    frame = pd.DataFrame(figures)
    whole = [name for name in ("size", "seed", "cut_at") if name in frame]
    frame.astype(dict.fromkeys(whole, "Int64")).to_csv(out / "table.csv", index=False)
    (out / "table.md").write_text(table.markdown(data.config, figures, tests), encoding="utf-8")
    page, pictures = ablation_page.page(data, figures, tests, all_gains)
    (out / "ablation.html").write_text(page, encoding="utf-8", newline="\n")
    write_pngs(out, pictures)
    return table.flat_figures(data.config, figures)


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
