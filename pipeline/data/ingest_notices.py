"""Notices of ingest: what it left out, and the user's options."""

from pathlib import Path

from pipeline.data.stored import read_table
from pipeline.notices import notice

OTHER_ENDINGS = 'add theirs to ingest.endings: rst for NAME.rst, "" for names without one'
NOTICES = {
    "undecodable_files": (
        "files left out, text or name not UTF-8",
        "save them as UTF-8, or as UTF-16 with its byte order mark; HTML may declare another charset",
    ),
    "binary_files": ("files left out, binary", "if they are UTF-16, save them with their byte order mark"),
    "empty_files": ("files left out, empty", ""),
    "large_files": ("files left out, larger than ingest.max_file_mb when unpacked", "raise it, or split them"),
    "unconverted_files": (
        "files left out, PDF, Word, PowerPoint or EPUB",
        "install the libraries that read them: pip install 'cocondenser[documents]'",
    ),
    "damaged_files": ("files left out, damaged, encrypted, nested too deeply or not of their ending's type", ""),
    "textless_files": (
        "files left out, without text: scans, or pages of links such as tables of contents",
        "scans need a text layer (OCR)",
    ),
    "other_files": ("files left out, other endings", OTHER_ENDINGS),
    "asset_files": ("files left out, parts of pages and media: styles, scripts, pictures, fonts, sound, video", ""),
    "unmatched_files": ("files left out, not matched by ingest.pattern", "change it to take them"),
    "hidden_files": ("files left out, hidden", "name a hidden folder in ingest.pattern to take its files"),
    "link_files": (
        "links left out, to folders, to nothing or in a circle",
        "put the files themselves into ingest.path",
    ),
    "special_files": ("files left out, neither files nor folders", ""),
    "unparsed_files": ("files left out, not Python of this version", ""),
    "unread_files": (
        "files left out, read by no table",
        "`split: all` reads every split (except of Parquet); of a folder only one kind of file is read: .jsonl, .csv, "
        ".tsv or .parquet in lower case; save all as one kind, or name them in the data_files of its README.md",
    ),
    "unnamed_files": (
        "files left out, not named as in a BEIR folder",
        "corpus.jsonl, qrels/train.tsv, dev.tsv and test.tsv are read, and queries.jsonl if there are qrels; each "
        "once, plain or with .gz, .xz or .zst",
    ),
    "empty_passages": ("passages dropped, without text and title", ""),
    "near_duplicates": (
        "passages that almost equal an earlier one",
        "they are no negatives of each other, and a search shows the best one; ingest.near_duplicates",
    ),
    "empty_queries": ("questions dropped, without text", ""),
    "unanswered_queries": ("dev and test questions without an answer, not counted in hits", ""),
    "unjudged_queries": ("questions left out, without a judgement", ""),
    "qrels_to_empty": ("judgements dropped, of questions or passages without text", ""),
    "unknown_qrels": ("judgements dropped, of unknown questions or passages", "check the ids"),
    "missing_qrels": ("relevant passages of dev and test that the corpus lacks, counted as not found", ""),
    "duplicate_qrels": ("duplicate judgements, each counted once", ""),
    "negatives_to_empty": ("negatives dropped, of questions or passages without text", ""),
    "unknown_negatives": ("negatives dropped, of unknown questions or passages", "check the ids"),
    "saying_nothing_left_out": (
        "texts not used as questions: too short, too long or without content",
        "ingest.heading_words, ingest.sentence_words",
    ),
    "repeated_left_out": ("texts not used as questions: they occur several times", ""),
    "without_rest_left_out": (
        "texts not used as questions: too little other text is left to find",
        "ingest.remaining_words",
    ),
}
"""{count in ingest.json: (what is counted, advice)}."""


def without_positives(collection: Path) -> list[str]:
    """Returns a notice if training questions have no relevant passage; they are not trained on."""
    import pyarrow.compute as pc

    path = collection / "qrels.parquet"
    judged = read_table(path, columns=["query_id"], filters=[("split", "=", "train"), ("relevance", ">", 0)])
    trained = read_table(collection / "queries.parquet", columns=["query_id"], filters=[("split", "=", "train")])
    query_ids = trained["query_id"].combine_chunks()
    lacking = query_ids.filter(pc.invert(pc.is_in(query_ids, value_set=judged["query_id"].combine_chunks())))
    what = "training questions left out, without a relevant passage"
    return [notice(what, len(lacking), lacking[:3].to_pylist())] if len(lacking) else []
