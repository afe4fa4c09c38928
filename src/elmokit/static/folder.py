"""Word vectors as a folder: ``config.json``, ``model.safetensors``, ``tokenizer.json``, ``vocab.txt``,
``README.md``. No pickle, no absolute path; loaded strictly or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch

import elmokit
from elmokit.core.atomic import STAGED, explain_os_errors, staging, write_text
from elmokit.core.errors import ConfigError, ModelError, RunError
from elmokit.core.model_folder import FORMAT, FORMAT_VERSION, kind_of, read_record
from elmokit.core.tensors import check_tensors, load_tensors, save_tensors
from elmokit.static.word_vectors import WordVectors
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import load_tokenizer
from elmokit.text.vocabulary import Vocabulary

__all__ = ["check_out", "load_vectors", "save_vectors", "vectors_card"]

_FRESH = "The files are damaged or do not belong together; take a fresh copy of the folder."


def save_vectors(folder: str | Path, vectors: WordVectors) -> None:
    """Write the table into ``folder``: all files aside first, then each in its place. ``config.json``
    goes first and comes last, so a folder that was cut short is never taken for a model."""
    folder = Path(folder)
    record = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": "word-vectors",
        "elmokit_version": elmokit.__version__,
        "n_words": len(vectors),
        "dim": vectors.dim,
        "text": vectors.text.to_dict(),
        "training": vectors.training,
    }
    tokenizer = vectors.pipeline.word_tokenizer(vectors.vocabulary.words)
    with staging(folder, "config.json") as staged:
        save_tensors(staged / "model.safetensors", {"vectors": torch.from_numpy(vectors.vectors)}, {})
        write_text(staged / "tokenizer.json", tokenizer.to_str(pretty=False))
        write_text(staged / "vocab.txt", vectors.vocabulary.text())
        write_text(staged / "README.md", vectors_card(folder.resolve().name, vectors))
        write_text(staged / "config.json", json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def check_out(folder: Path) -> None:
    """Refuse to write word vectors where something else is, or where nothing can be written."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, not a folder.", remedy="Choose another --out.")
    is_ours = kind_of(folder) == "word-vectors"
    if folder.is_dir() and not is_ours and {file.name for file in folder.iterdir()} - {STAGED}:
        raise RunError(
            f"{folder} exists and is not a folder of word vectors; nothing in it was touched.",
            remedy="Choose another --out, or empty the folder yourself.",
        )
    was_there = folder.exists()
    with explain_os_errors(folder):
        shutil.rmtree(folder / STAGED, ignore_errors=True)
        (folder / STAGED).mkdir(parents=True)
        (folder / STAGED).rmdir()
        if not was_there:
            folder.rmdir()


def load_vectors(folder: str | Path) -> WordVectors:
    """Read a folder of word vectors. Anything missing, damaged, foreign or of the wrong shape is an
    error that says which file and why."""
    folder = Path(folder)
    record = read_record(folder, "word-vectors")
    try:
        text = TextConfig.from_dict(record["text"])
        n_words, dim = int(record["n_words"]), int(record["dim"])
        training = dict(record["training"])
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise ModelError(f"{folder / 'config.json'} is damaged: {error}", remedy=_FRESH) from error
    vocabulary = Vocabulary.load(folder / "vocab.txt")
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    for name, found in (("vocab.txt", len(vocabulary)), ("tokenizer.json", tokenizer.get_vocab_size())):
        if found != n_words:
            raise ModelError(f"{folder / name} has {found} words, config.json says {n_words}.", remedy=_FRESH)
    file = folder / "model.safetensors"
    tensors, _ = load_tensors(file)
    with torch.device("meta"):
        check_tensors(file, {"vectors": torch.empty(n_words, dim)}, tensors)
    try:
        return WordVectors(vocabulary, tensors["vectors"].float().numpy(), text, training)
    except ModelError as error:
        raise ModelError(f"{file}: {error.message}", remedy=_FRESH) from error


def vectors_card(name: str, vectors: WordVectors) -> str:
    """The folder's README.md."""
    training = vectors.training
    rows = [("words", f"{vectors.n_words:,}"), ("vectors", f"{vectors.dim} wide")]
    if training.get("method"):
        rows.insert(0, ("method", str(training["method"])))
    if corpus := training.get("corpus"):
        files = ", ".join(corpus["files"])
        rows += [
            ("corpus", f"{corpus['n_words']:,} words in {corpus['n_documents']:,} texts ({files})"),
            ("unknown words in it", f"{corpus['unknown_share']:.2%}"),
        ]
    for label, key in (("from", "file"), ("date", "date"), ("made by", "command")):
        if training.get(key):
            rows.append((label, f"`{training[key]}`"))
    rows.append(("licence", str(training.get("licence") or "not stated: that of the text applies")))
    table = "\n".join(
        f"| {label} | {' '.join(value.replace('|', chr(92) + '|').split())} |" for label, value in rows
    )
    return (
        f"# {name}\n\nStatic word vectors made with elmokit {elmokit.__version__}: one vector for each word, "
        f"whatever stands around it.\n\n| | |\n|---|---|\n{table}\n\n"
        "Look at them with `elmokit similar` or, in Python, `elmokit.load_vectors`.\n"
    )
