"""The section `generate` of a recipe: what is refused, and that no message shows what may be a key."""

import pytest

from flows.recipes.recipe import configuration, resolve
from pipeline.errors import InputError

SERVER = ("generate.endpoint=https://host/v1", "generate.model=m")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["generate.endpoint=https://host/v1"], "endpoint and model belong together"),
        (["generate.model=m"], "endpoint and model belong together"),
        ([*SERVER, "generate.checkpoint=folder"], "checkpoint and endpoint are set: set one of them"),
        (["generate.endpoint=host:80", "generate.model=m"], "an address such as https://HOST/v1"),
        (["generate.endpoint=file:///etc/passwd", "generate.model=m"], "an address such as https://HOST/v1"),
        ([*SERVER, "generate.kinds=[]"], "generate.kinds"),
        ([*SERVER, "generate.kinds=[title, title]"], "names a kind twice"),
        ([*SERVER, "generate.kinds=[poem]"], "generate.kinds"),
        ([*SERVER, "generate.max_cost=3"], "max_cost needs price_per_million_tokens"),
        ([*SERVER, "generate.prompt=passage"], "needs instructions"),
        (["generate.checkpoint=f", "generate.prompt=passage"], "several questions of a passage alone are sampled"),
        ([*SERVER, "stage1.negatives_from=collection"], "generated questions come without negatives"),
        (
            [*SERVER, "rerank={depth: 10, splits: [test]}", "cross_encoder.negatives_from=collection"],
            "cross_encoder.negatives_from: generated questions come without negatives",
        ),
        (
            [
                *(*SERVER, "denoise.threshold=0.1", "soft_labels.negatives_from=collection"),
                *("cross_encoder.loss=pointwise", "cross_encoder.negatives_per_query=1"),
            ],
            "soft_labels.negatives_from: generated questions come without negatives",
        ),
        ([*SERVER, "negatives_file={file: f.tsv, number: null, seed: 0, page_questions: 0}"], "negatives_file has no"),
    ],
)
def test_contradictions_are_one_line(settings: list[str], problem: str) -> None:
    with pytest.raises(InputError) as raised:
        resolve("tiny", settings)
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


FILE = "{file: f.tsv, number: null, seed: 0, page_questions: 0}"
LABELS = "fusion_labels={negatives_from: bm25, negative_depth: null}"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ([LABELS], "fusion_labels: no stage reads them"),
        (["stage2.loss=soft_labels", LABELS.replace("null", "1")], "is beyond fusion_labels.negative_depth (1)"),
        (["stage2.loss=soft_labels", LABELS.replace("bm25", "collection")], "fusion_labels.negatives_from differ"),
        (["stage2.loss=soft_labels", LABELS, "rounds.number=0"], "which 0 leaves out"),
        (
            ["stage2.loss=soft_labels", LABELS, f"negatives_file={FILE}", "search.splits=[dev, test]"],
            "search.splits lacks train, whose lists fusion_labels reads",
        ),
    ],
)
def test_labels_of_the_fusion_fit_stage_2(settings: list[str], problem: str) -> None:
    with pytest.raises(InputError) as raised:
        resolve("tiny", settings)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("setting", "secret"),
    [
        ("generate.key_variable=sk-abcdef123", "sk-abcdef123"),
        ("generate.endpoint=https://me:hunter2@host/v1", "hunter2"),
        ("generate.endpoint=https://host/v1?api-key=hunter2", "hunter2"),
        ("generate.endpoint=hunter2", "hunter2"),
    ],
)
def test_a_message_does_not_show_what_may_be_a_key(setting: str, secret: str) -> None:
    with pytest.raises(InputError) as raised:
        resolve("tiny", [setting, "generate.model=m"])
    assert secret not in str(raised.value)
    assert str(raised.value).startswith(f"--set {setting.partition('=')[0]}: ")


def test_the_report_of_a_run_without_the_stage_stays_as_it_was() -> None:
    assert "generate" not in configuration(resolve("tiny"))
    assert configuration(resolve("tiny", SERVER))["generate"]["model"] == "m"
