"""Finds the words that CONTRIBUTING.md lists as hard to read.

python .ci/words.py                          all tracked text files
python .ci/words.py --paths README.md docs   these files and folders
python .ci/words.py --skip docs/old.md       all but these files and folders
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
HEADING = "## Words"
PATTERNS = ("*.py", "*.md", "*.yaml", "*.toml", "*.html", "*.jinja", "*.sh", "Makefile", "*/Makefile", ".ci/run")


def word_list(text: str) -> dict[str, str]:
    """{phrase in lower case: what to write instead}, from the table under HEADING."""
    _, _, section = text.partition(f"\n{HEADING}\n")
    rows = re.findall(r"^\| (?!avoid )([^|-].*?) \| (.*?) \|$", section, flags=re.MULTILINE)
    return {phrase.strip(): instead for phrases, instead in rows for phrase in phrases.split(",")}


def pattern(phrases: list[str]) -> re.Pattern[str]:
    """Whole words, in any case, also over the end of a line, where a comment's mark may follow."""
    ways = sorted((r"[\s#]+".join(map(re.escape, phrase.split())) for phrase in phrases), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(ways)})(?![\w-])", flags=re.IGNORECASE)


def found(text: str, words: dict[str, str]) -> Iterator[tuple[int, str, str]]:
    """(line from 1, phrase, what to write instead) of each listed phrase in the text."""
    for match in pattern([*words]).finditer(text):
        phrase = " ".join(re.split(r"[\s#]+", match[0].lower()))
        yield text.count("\n", 0, match.start()) + 1, phrase, words[phrase]


def prose(path: Path) -> str:
    """The file's text; of CONTRIBUTING.md what comes before the list itself."""
    text = path.read_text("utf-8")
    return text.partition(f"\n{HEADING}\n")[0] if path.resolve() == CONTRIBUTING else text


def tracked(paths: list[str], skipped: list[str]) -> list[Path]:
    """The tracked text files among the paths (all if none), without the skipped ones."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--", *PATTERNS]
    names = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    files = [ROOT / name for name in names]
    return [file for file in files if (not paths or is_below(file, paths)) and not is_below(file, skipped)]


def is_below(file: Path, paths: list[str]) -> bool:
    """Whether the file is one of the paths or in one of these folders."""
    return any(file.is_relative_to((ROOT / path).resolve()) for path in paths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paths", nargs="+", default=[], help="files and folders (default: all tracked text files)")
    parser.add_argument("--skip", nargs="+", default=[], help="files and folders that are not read")
    options = parser.parse_args()
    words = word_list(CONTRIBUTING.read_text("utf-8"))
    lines = [
        f"{path.relative_to(ROOT)}:{line}: {phrase} -> {instead}"
        for path in tracked(options.paths, options.skip)
        for line, phrase, instead in found(prose(path), words)
    ]
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
