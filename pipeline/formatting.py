"""Counts, shares and p values as text, as papers print them."""

from collections.abc import Mapping


def counted(count: float, things: str) -> str:
    """Returns `1 question` or `1,234 questions`. `things`: the plural; its `s` is dropped for 1."""
    return f"{count:,} {things.removesuffix('s') if count == 1 else things}"


def estimate_text(figure: Mapping[str, float]) -> str:
    """Returns `.497 [.475, .519]`: the mean and its confidence interval."""
    mean, low, high = (share_text(figure[key]) for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def share_text(share: float) -> str:
    """Returns `.497` or `−.012`; `.000` for a share that rounds to 0 from either side."""
    return f"{round(share, 3) + 0.0:.3f}".replace("0.", ".", 1).replace("-", "−")


def p_text(p: float) -> str:
    """Returns `.043` or `< .001`."""
    return "< .001" if p < 0.001 else share_text(p)
