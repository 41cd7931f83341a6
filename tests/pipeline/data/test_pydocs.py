"""Docstrings as documents and questions, and the collection built from them."""

import hashlib
import re
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from pipeline.data.ingest import IngestConfig, missing, sources
from pipeline.data.readers import pydocs
from pipeline.data.readers.docstrings import docstrings, documents, question_of
from pipeline.errors import InputError

ROOT = Path(__file__).resolve().parents[3]
REST = "\n\n" + " ".join(f"word{i}" for i in range(20))


def test_docstrings_of_all_definitions_are_listed_in_line_order():
    source = textwrap.dedent(
        '''
        """The module.

            Indented.
        """
        raise RuntimeError("never run")
        try:
            def first():
                """In a try."""
        except ImportError:
            def other():
                """In a handler."""
        class Outer:
            """A class."""
            if True:
                async def method(self):
                    r"""A method: \\d."""
                    def inner():
                        """Nested."""
            silent = 1
        def silent():
            x = """no docstring"""
        '''
    ).encode()
    assert list(docstrings(source, "pkg.mod")) == [
        ("pkg.mod", "The module.\n\nIndented."),
        ("pkg.mod.first", "In a try."),
        ("pkg.mod.other", "In a handler."),
        ("pkg.mod.Outer", "A class."),
        ("pkg.mod.Outer.method", "A method: \\d."),
        ("pkg.mod.Outer.method.inner", "Nested."),
    ]
    with pytest.raises(SyntaxError):
        list(docstrings(b"print 'two'", "old"))


@pytest.mark.parametrize(
    "paragraph",
    [
        "Return the sorted list.",
        "Return the list,\n    sorted by key.",
        "Compute sin(x) for each element",
        "a " * 99 + "ab",
    ],
)
def test_prose_is_a_question(paragraph):
    question, rest = question_of(paragraph + REST + "\n", 20)
    assert question == " ".join(paragraph.split())
    assert rest == REST.strip()


@pytest.mark.parametrize(
    "paragraph",
    [
        "three words only",
        "a " * 100 + "b",
        "'quoted' words do not count",
        "1. a numbered list item",
        ".. note:: a directive of Sphinx",
        "Args: these are the arguments",
        "Sets it. :param x: its new value",
        "Use it so: >>> f(1)",
        "svd(a, full_matrices=True, compute_uv=True) does it",
        "solve(a, b) -> the solution x",
        "The name of this module\n=======================",
        "The name of this module\n~~~~~~",
        "Parameters of this function\n----",
    ],
)
def test_a_paragraph_that_is_not_prose_is_not_a_question(paragraph):
    assert question_of(paragraph + REST, 20) is None


def test_a_question_needs_enough_remaining_words():
    assert question_of("Return the sorted list." + REST, 21) is None
    assert question_of("Return the sorted list of all things.", 1) is None


def test_equal_bodies_are_kept_once_and_repeated_questions_are_dropped():
    body, other = REST.strip(), REST.strip() + " more"
    rows = [
        ("f", "a", f"Return the sorted list.\n\n{body}"),
        ("g", "b", f"Return the sorted list.\n\n{body}"),
        ("g", "c", f"Find the first element.\n\n{body} c"),
        ("g", "d", f"find  the first Element.\n\n{body} d"),
        ("h", "e", f"Return another sorted list.\n\n{body}"),
        ("h", "a", other),
    ]
    kept = documents(rows, 20)
    assert [(d.name, d.title, d.file, d.question) for d in kept] == [
        ("a", "a", "f", "Return the sorted list."),
        ("c", "c", "g", None),
        ("d", "d", "g", None),
        ("a~2", "a", "h", None),
    ]
    assert [kept[0].text, kept[1].text, kept[3].text] == [body, f"Find the first element.\n\n{body} c", other]


def test_tests_vendored_code_and_files_that_cannot_be_imported_are_left_out():
    def is_read(path: str) -> bool:
        return pydocs._is_read(pydocs.PurePosixPath(path))

    assert all(map(is_read, ["a/b.py", "numpy/testing/utils.py", "a/testing.py", "a/contest.py", "unittest/case.py"]))
    excluded = ["a/tests/b.py", "test/b.py", "a/test_b.py", "a/b_test.py", "a/conftest.py", "a/_vendor/b.py", "a/b.pyi"]
    excluded += ["sklearn/externals/b.py", "torch/testing/_internal/b.py", "../bin/b.py", "config-3.11/b.py", "a-b.py"]
    assert not any(map(is_read, excluded))


def distribution(site: Path, name: str, **modules: str) -> None:
    """An installed distribution, with a record of its files."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for module, text in modules.items():
        path = site / name / f"{module}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    recorded = [f"{name}/{module}.py,," for module in modules] + [f"{info.name}/METADATA,,"]
    info.joinpath("RECORD").write_text("\n".join(recorded))


@pytest.fixture
def fields(tmp_path, monkeypatch) -> dict:
    """Two small distributions in a separate folder, without the standard library."""
    functions = "\n".join(
        f'def f{i}():\n    """Do the thing number {i}.\n\n    {" ".join(f"w{i}x{j}" for j in range(150))}\n    """'
        for i in range(12)
    )
    for place in ("one", "two"):
        site = tmp_path / place / "site"
        distribution(site, "alpha", __init__='"""' + "alpha " * 50 + '"""', **{f"m{i}": "" for i in range(3)})
        distribution(site, "beta", core=functions, broken="print 'two'", other=functions.replace("thing", "other"))
    monkeypatch.setattr(pydocs.sysconfig, "get_path", lambda name: str(tmp_path / "nothing"))
    monkeypatch.syspath_prepend(str(tmp_path / "one" / "site"))
    numbers = {"docstring_characters": 200, "passage_words": 80, "remaining_words": 20, "limit": None, "metadata": []}
    return {"reader": "pydocs", "distributions": ["beta", "alpha"], **numbers}


def test_collection_of_docstrings(fields, ingested):
    result = ingested(**fields)
    assert result.counts["unparsed_files"] == 1
    assert (result.counts["documents"], result.counts["files"]) == (13, 7)
    assert result.passages[0][:3] == ("alpha#0", "alpha", "alpha")
    assert [row[:3] for row in result.passages[1:3]] == [
        ("beta.core.f0#0", "beta.core.f0", "beta.core.f0"),
        ("beta.core.f0#1", "beta.core.f0", "beta.core.f0"),
    ]
    text = " ".join(row[3] for row in result.passages if row[1] == "beta.core.f0")
    assert text.split() == [f"w0x{j}" for j in range(150)]
    assert [query.text for query in result.queries] == [f"Do the thing number {i}." for i in range(12)]
    assert {query.split for query in result.queries} == {pydocs.split_of("beta/beta/core.py")}
    assert result.qrels["beta.core.f0"] == {"beta.core.f0#0": 1, "beta.core.f0#1": 1}
    assert set(result.qrels) == {query.query_id for query in result.queries}


def test_metadata_name_the_source_and_module_of_a_docstring(fields, ingested):
    result = ingested(**fields | {"metadata": ["source", "module"]})
    of_passage = {row[0]: values for row, values in zip(result.passages, result.metadata, strict=True)}
    assert of_passage["alpha#0"] == {"source": "alpha", "module": "alpha"}
    assert of_passage["beta.core.f0#0"] == of_passage["beta.core.f0#1"] == {"source": "beta", "module": "beta.core"}
    with pytest.raises(ValidationError, match="metadata"):
        ingested(**fields | {"metadata": ["version"]})
    with pytest.raises(ValidationError, match="'source' twice"):
        ingested(**fields | {"metadata": ["source", "source"]})


def test_another_installation_folder_gives_equal_bytes(fields, tmp_path, monkeypatch, ingested):
    config = TypeAdapter(IngestConfig).validate_python(fields)
    first, names = ingested(**fields), list(sources(config))
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not p.startswith(str(tmp_path))])
    monkeypatch.syspath_prepend(str(tmp_path / "two" / "site"))
    assert str(tmp_path / "two") in str(next(iter(sources(config).values())))
    assert list(sources(config)) == names == sorted(names)
    second = ingested(**fields | {"distributions": ["alpha", "beta"]})
    for name in ("passages.parquet", "queries.parquet", "qrels.parquet", "ingest.json"):
        digests = {hashlib.sha256((result.folder / name).read_bytes()).digest() for result in (first, second)}
        assert len(digests) == 1


def test_limit_keeps_a_fixed_subset_of_the_documents(fields, ingested):
    whole, part, smaller = ingested(**fields), ingested(**fields | {"limit": 5}), ingested(**fields | {"limit": 4})
    assert (part.counts["documents"], smaller.counts["documents"]) == (5, 4)
    assert set(smaller.passages) < set(part.passages) < set(whole.passages)
    assert [row for row in whole.passages if row in set(part.passages)] == part.passages


def test_a_distribution_that_is_not_installed_is_reported(fields, ingested):
    wrong = fields | {"distributions": ["beta", "no-such-thing"]}
    config = TypeAdapter(IngestConfig).validate_python(wrong)
    assert missing(config) == ["ingest.distributions: no-such-thing is not installed: pip install no-such-thing"]
    with pytest.raises(InputError, match="no-such-thing is not installed: pip install no-such-thing"):
        ingested(**wrong)


def test_missing_demo_distributions_are_installed_with_the_demo_extra(fields, monkeypatch):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [requirement.partition(">")[0] for requirement in extras["demo"]] == [*pydocs.DEMO]
    assert "demo" in extras["dev"][0]
    monkeypatch.setattr(pydocs.metadata, "distributions", lambda name: iter(()))
    config = TypeAdapter(IngestConfig).validate_python(fields | {"distributions": ["scikit-learn"]})
    line = "ingest.distributions: scikit-learn is not installed: pip install 'cocondenser[demo]'"
    assert missing(config) == [line]
    with pytest.raises(InputError, match=re.escape(line)):
        pydocs.sources(config)


@pytest.mark.slow
def test_standard_library(ingested):
    """The real standard library has enough docstrings, with questions in every split."""
    numbers = {"docstring_characters": 200, "passage_words": 80, "remaining_words": 20, "limit": 300, "metadata": []}
    result = ingested(reader="pydocs", distributions=[], **numbers)
    assert result.counts["documents"] == 300
    assert result.counts["train_queries"] > 100
    assert min(result.counts["dev_queries"], result.counts["test_queries"]) >= 10
    assert not [row[0] for row in result.passages if ".test." in row[0] or row[0].startswith("test.")]
    judged = {passage for passages in result.qrels.values() for passage in passages}
    assert judged <= {row[0] for row in result.passages}


def test_splits_are_80_10_10_by_file():
    splits = [pydocs.split_of(f"python/module{i}.py") for i in range(5000)]
    assert [round(splits.count(split) / 5000, 1) for split in ("train", "dev", "test")] == [0.8, 0.1, 0.1]
