"""A stage that takes no time."""

from pathlib import Path

from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.runtime.work import Metrics, Work


class LetterConfig(Config):
    text: str
    path: Path | None


def letter(config: LetterConfig, before: Path | None, work: Work) -> Metrics:
    """Writes its text after that of `before`."""
    if config.text == "bad":
        raise InputError("letter.text: bad")
    newest = work.checkpoints / "step-700"
    if config.text == "killed" and not newest.exists():
        newest.mkdir(parents=True)
        (newest / "state.json").write_text('{"step": 700}')
        raise InterruptedError
    old = (before / "letter").read_text() if before else ""
    for done in range(3):
        work.progress(done + 1, 3, "letters", {"loss": 1.0 / (done + 1)})
    (work.out / "letter").write_text(old + config.text)
    odd = {"notice": "odd [letters]\nfew letters"} if config.text == "odd" else {}
    return {"letters": len(old + config.text), "note": "a | b <script>", "nothing": None} | odd
