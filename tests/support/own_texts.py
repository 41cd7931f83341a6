"""Recipes' sections that read anyone's own texts."""

from pathlib import Path

NO_QUESTIONS = {
    "questions": [],
    "heading_words": 2,
    "sentence_words": [4, 40],
    "crop_share": [0.2, 0.5],
    "remaining_words": 5,
    "kept_share": 0.0,
    "dev_share": 0.0,
    "test_share": 0.0,
    "seed": 1,
}
REST = "Then more follows about it, in many words that stay."


def fields(path: Path, **changed) -> dict:
    plain = {"reader": "text", "path": path, "pattern": "**/*", "endings": [], "documents": "files", "id_key": ""}
    return plain | {"title_key": "", "text_key": "text", "metadata": [], "passage_words": None} | NO_QUESTIONS | changed
