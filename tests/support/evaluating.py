"""How the tests evaluate. Used by several test files, each of which says what it has otherwise."""

from pipeline.evaluate.config import EvaluateConfig

EVALUATE = EvaluateConfig(
    relevance=1,
    systems={},
    fusions=[],
    fusion_methods=["reciprocal_rank"],
    fusion_weights=[0.9],
    reciprocal_k=60,
    bootstrap_samples=100,
    test="randomisation",
    permutations=200,
    nb_recall=[1, 2],
    seed=0,
    answers=2,
)
