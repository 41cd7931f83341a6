"""Parts of an ablation, built once for the tests of a module."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from ablated import looked, trained, undrawn
from ablation_parts import PLACES, SYSTEMS, MakePart, Place, evaluation
from searched import write_collection

from pipeline.ablation import files as ablation_files
from pipeline.ablation.ablation import render
from pipeline.ablation.config import AblationConfig, CellConfig
from pipeline.ablation.data import collect
from pipeline.runtime.work import silent


@pytest.fixture(scope="module")
def pictures_are_not_drawn() -> Iterator[None]:
    with undrawn():
        yield


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> MakePart:
    """A function that writes the data of a part from its cells and its changed settings."""
    collection = write_collection(
        tmp_path_factory.mktemp("of") / ("c" * 64),
        [("p0", "p0", "", "text")],
        [(f"train{q}", "train", "question") for q in range(40)],
        [("train", f"train{q}", "p0", 1) for q in range(40)],
    )

    @cache
    def evaluated(place: Place, **changes) -> Path:
        name = f"{PLACES.index(place):064x}"
        return evaluation(tmp_path_factory.mktemp("evaluations") / ("e" + name[1:]), place, **changes)

    def artifact(keeps: Callable[[Place], bool] = lambda place: True, **changes) -> Path:
        folder = tmp_path_factory.mktemp("part")
        columns = changes.pop("systems", SYSTEMS)
        measured = {name: changes.pop(name) for name in ("bm25", "questions", "splits") if name in changes}
        places = [place for place in PLACES if keeps(place)]
        inputs, cells = {}, []
        for n, place in enumerate(places):
            row, size, seed = place
            name = f"{PLACES.index(place):064x}"
            (folder / name).mkdir()
            inputs[f"evaluate_{n}"] = evaluated(place, **measured)
            drawn = (size, seed) == (places[-1][1], places[0][2])
            if drawn:
                inputs[f"stage1_{n}"] = trained(
                    folder / name / ("a" + name[1:]), PLACES.index(place) + 1 / np.arange(1, 21)
                )
                inputs[f"attention_{n}"] = looked(folder / name / ("b" + name[1:]), float(PLACES.index(place)))
            systems = ({"none": "pretrained"} if drawn else {}) | columns
            command = ["cocondenser", "run", "tiny", "--set", f"stage1.seed={seed}"]
            cells.append(
                CellConfig(row=row, size=size, seed=seed, systems=systems, epochs=4, command=command, start=None)
            )
        fields = {"title": "All", "reference": places[0][0], "measures": ["RR@10", "hits@5"], "test": "randomisation"}
        config = AblationConfig(**{**fields, "samples": 100, "seed": 7, **changes}, cells=cells)
        (folder / "out").mkdir()
        ablation_files.write_data(collect(config, collection, inputs, silent), folder / "out")
        return folder / "out"

    return artifact


@pytest.fixture(scope="module")
def whole(make: MakePart, pictures_are_not_drawn: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact of all cells."""
    folder = tmp_path_factory.mktemp("whole")
    render(ablation_files.read_data(make()), folder)
    return folder


@pytest.fixture(scope="module")
def first(make: MakePart) -> Path:
    """The first row alone."""
    return make(lambda place: place[0] == "plain")


@pytest.fixture(scope="module")
def others(make: MakePart) -> Path:
    return make(lambda place: place[0] != "plain")
