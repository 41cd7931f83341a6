"""Counts, shares and p values as text, as papers print them."""

from collections.abc import Mapping


def counted(count: int, things: str) -> str:
    """`1 question`, `1,234 questions`. `things`: the plural, whose `s` one alone goes without."""
    return f"{count:,} {things.removesuffix('s') if count == 1 else things}"


def estimate_text(figure: Mapping[str, float]) -> str:
    """`.497 [.475, .519]`, as papers print shares."""
    mean, low, high = (share_text(figure[key]) for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def share_text(share: float) -> str:
    """`.497`, `−.012`; `.000` for what rounds to nothing from either side."""
    return f"{round(share, 3) + 0.0:.3f}".replace("0.", ".", 1).replace("-", "−")


def p_text(p: float) -> str:
    """`.043`, `< .001`."""
    return "< .001" if p < 0.001 else share_text(p)
