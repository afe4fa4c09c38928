"""``convert``: models and word vectors of other programs to our folders, and back."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm, weights_of
from elmokit.bilm.model import Bilm
from elmokit.bilm.state import average_state
from elmokit.core.config import merge_settings
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError, ModelError, nearest
from elmokit.core.formatting import join_names
from elmokit.core.model_folder import kind_of, load
from elmokit.core.names import content_checksum, resolve_name
from elmokit.core.run_folder import open_out
from elmokit.core.tensors import fingerprint
from elmokit.corpora import mini_news
from elmokit.published.many_langs import is_many_langs, load_many_langs
from elmokit.published.official import (
    TEXT,
    THEIR_SPECIALS,
    find_official,
    load_official,
    read_vocabulary,
    save_official,
)
from elmokit.text.corpus import Documents
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig, TextConfig
from elmokit.text.tokenizing import BOS, EOS, TextPipeline, split_sentences
from elmokit.training.machine import tuned_process

# To the right of this package, so imported by name when they are used.
_EXCHANGE, _ENCODER = "elmokit.static.exchange", "elmokit.vectors.encoder"
_WORD_CACHE = "elmokit.vectors.word_cache"
_CALIBRATION_WORDS = 16_000
_TABLES = {".txt", ".vec", ".bin"}
_TEXT_NAMES = {field.name for field in dataclasses.fields(TextConfig)}
_READ_NAMES = {field.name for field in dataclasses.fields(ReadConfig)}

_USED = {  # the options and settings that have an effect, by task
    "cache": {"token_cache"},
    "export": set(),
    "import": {"text", *_TEXT_NAMES, "encoding", "errors", "max_words"},
    "shrink": {"compact"},
    "write official": {"to"},
    "rewrite official": {"to", "vocab"},
    "read official": {"vocab", "text", *_TEXT_NAMES, "calibrate", *_READ_NAMES, "compact"},
}


@dataclass(frozen=True)
class Conversion:
    """What ``convert`` wrote."""

    path: Path  # the folder, or the file of word vectors
    n_parameters: int  # numbers in the model, table or cache
    n_words: int | None = None  # rows of a table or token cache; None for a language model
    notes: tuple[str, ...] = ()  # remarks on it, in sentences


def convert(  # long because it is the whole verb; # many parameters because each is a flag
    source: str | Path,
    out: str | Path | None = None,
    *,
    to: Literal["elmokit", "official"] = "elmokit",
    vocab: str | Path | None = None,
    text: TextConfig | None = None,
    calibrate: str | Path | Sequence[str | Path] | None = None,
    compact: bool = False,
    token_cache: str | Path | None = None,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    command: str = "",
    **settings: Any,
) -> Conversion:
    """Convert published models and word vectors to elmokit folders, and back.

    Args:
        source: A published model (its folder or options file), an ELMoForManyLangs folder, a table of word
            vectors (``.txt``, ``.vec``, ``.bin``, also ``.gz``), or an elmokit folder.
        out: The folder to write, new or empty. Word vectors of ours are written to a ``.txt``, ``.vec`` or
            ``.bin`` file.
        to: "elmokit", a model folder; or "official": ``options.json``, ``weights.hdf5`` and ``vocab.txt``.
        vocab: The word list of a published model, if there is no ``vocab.txt`` next to it.
        text: How raw strings become words from now on.
        calibrate: Files to measure the start state of ``state="warm"`` on, or "none" to skip it. By default,
            a bundled English sample.
        compact: Smaller: half precision and no output layer; for computing vectors only.
        token_cache: Write only the token-encoder vectors of this word list, to ``out`` or into the model's
            folder, where they are used whenever the model is opened.
        overwrite: Replace a model, table or cache that ``out`` holds.
        command: The command line, for the model card.
        settings: Of ``TextConfig`` and ``ReadConfig`` by name; ``max_words`` of a table.
    """
    source, reporter = resolve_name(source), reporter or Reporter("silent")
    if to not in ("elmokit", "official"):
        raise ConfigError(f"to = {to!r} is not a valid choice.", remedy=nearest(to, ["elmokit", "official"]))
    own_settings = {name: value for name, value in settings.items() if name != "max_words"}
    configs: Any = merge_settings(own_settings, text=text or TEXT, read=ReadConfig())
    task = "cache" if token_cache is not None else _find_task(source, to)
    options = {"to": to == "official", "vocab": vocab, "text": text, "calibrate": calibrate}
    options |= {"compact": compact, "token_cache": token_cache, **dict.fromkeys(settings, True)}
    if unused := [name for name, value in options.items() if value and name not in _USED[task]]:
        raise ConfigError(f"This conversion does not use {join_names(unused)}.", remedy="Leave it out.")
    if token_cache is not None:
        return _write_token_cache(source, Path(token_cache), out, overwrite, reporter)
    if out is None:
        raise ConfigError("OUT is missing.", remedy="Name the folder to write: elmokit convert SOURCE OUT.")
    out = Path(out)
    if task == "export":
        return _export_vectors(source, out, overwrite=overwrite, say=reporter.say)
    job = {"convert": {"to": to, "compact": compact, "max_words": settings.get("max_words")}}
    job |= {name: config.to_dict() for name, config in configs.items()}
    if task == "import":
        folder = open_out(out, "word-vectors", overwrite=overwrite)
        with folder.lock():
            if folder.is_done(job, {"source.files": content_checksum(source)}, reporter.say):
                vectors: Any = load(out)
                return Conversion(out, vectors.vectors.size, vectors.n_words)
            return _import_vectors(source, out, text, settings, command)
    if task == "shrink" and not compact:
        raise ModelError(
            f"{source} is already an elmokit folder.",
            remedy="To write it for other tools, use --to official; to make it smaller, --compact.",
        )
    folder = open_out(out, "official" if to == "official" else "converted", overwrite=overwrite)
    texts = [calibrate] if isinstance(calibrate, str | Path) else list(calibrate or ())
    sample = TextSource(texts, configs["read"]) if texts not in ([], ["none"]) else None
    with folder.lock():
        is_ours = task in ("shrink", "write official")
        foreign = None if is_ours else load_foreign(source, vocabulary=vocab, text=configs["text"])
        saved = foreign or load_bilm(source)
        notes: list[str] = [] if is_ours else saved.training["notes"]
        files = [source, *([Path(vocab)] if vocab else [])]
        if source.is_file():
            files += [file for file in find_official(source) or () if file]
        inputs = {
            "source.files": content_checksum(*files, exclude=out),
            "calibrate.files": fingerprint({"": sample.fingerprints() if sample else str(calibrate)}),
        }
        if folder.is_done(job, inputs, reporter.say):
            notes = []
        elif to == "official":
            notes = notes + save_official(out, saved)
        elif is_ours:
            save_bilm(out, remove_predictor(saved), half=True)
        else:
            if calibrate is None or sample is not None:
                saved, note = _calibrate(saved, texts, sample, reporter)
                notes = [*notes, note]
            record = {"notes": notes, "date": datetime.date.today().isoformat(), "command": command}
            record |= {"license": "not stated: that of the published model applies"}
            save_bilm(out, replace(saved, training={**saved.training, **record}), half=compact)
    weights = weights_of(saved.model).items()
    n_parameters = sum(values.numel() for name, values in weights if not name.startswith("predictor."))
    return Conversion(out, n_parameters, notes=tuple(notes))


def _find_task(source: Path, to: str) -> str:
    kind = kind_of(source)
    if kind == "word-vectors":
        return "export"
    if kind is not None:
        return "write official" if to == "official" else "shrink"
    ending = Path(source.name.lower().removesuffix(".gz")).suffix
    if source.is_file() and ending in _TABLES:
        return "import"
    return "rewrite official" if to == "official" else "read official"


# -- language models ------------------------------------------------------------------------------


def load_foreign(
    path: Path, *, vocabulary: str | Path | None = None, text: TextConfig = TEXT
) -> BilmFolder | None:
    """The language model of a folder or file that elmokit did not write; None if there is none."""
    if not path.exists():
        return None
    if path.is_dir() and is_many_langs(path):
        return load_many_langs(path, text=text)
    if find_official(path) is not None:
        return load_official(path, vocabulary=vocabulary, text=text)
    if any(path.glob("*.ckpt*")):
        raise ModelError(
            f"{path} holds a TensorFlow checkpoint, not published weights.",
            remedy="Write weights.hdf5 with the dump_weights program of bilm-tf first.",
        )
    return None


def remove_predictor(saved: BilmFolder) -> BilmFolder:
    """The model without its word predictor: it gives vectors, but is not a language model any more."""
    config = replace(saved.model.config, objective="none", tie=False)
    with torch.device("meta"):
        model = Bilm(config, saved.model.n_words, saved.model.n_pieces)
    model.load_state_dict(weights_of(saved.model), strict=False, assign=True)
    if config.input == "char+word":
        model.encoder.table = saved.model.encoder.table
    return replace(saved, model=model.eval())


def _calibrate(
    saved: BilmFolder, names: Sequence[str | Path], sample: TextSource | None, reporter: Reporter
) -> tuple[BilmFolder, str]:
    """The model with the mean state after many sentences (of the bundled sample if there is no other) as its
    start state, and a note on their source."""
    pipeline = saved.pipeline if sample else TextPipeline(TextConfig())
    sentences: list[list[str]] = []
    n_words = 0
    for text in sample or TextSource([mini_news()]):
        for sentence in split_sentences(text):
            if words := [saved.pipeline.word(word) for word in pipeline.words(sentence)]:
                sentences.append(words)
                n_words += len(words) + 2
        if n_words >= _CALIBRATION_WORDS:
            break
    if not sentences:
        raise ConfigError(
            "The text for estimating the start state has no words.",
            remedy="Give other text, or --calibrate none.",
        )
    reporter.say(f"[dim]Measuring the start state on {n_words:,} words (--calibrate none skips this).[/]")
    ids = importlib.import_module(_ENCODER).number_words(sentences, saved.features, (BOS, EOS))
    with (
        reporter.counting("Measuring the start state", total=n_words, unit="words") as advance,
        tuned_process(),
        torch.inference_mode(),
    ):
        documents = Documents(ids.values, ids.offsets)
        state = average_state(saved.model, documents, ids.features, progress=advance)
    state = state.map(torch.Tensor.clone)  # usable outside of inference mode
    origin = ", ".join(Path(name).name for name in names)
    origin = origin or "the bundled English sample; for other text, convert with --calibrate"
    note = f"The start state of state='warm' is the mean after {len(sentences):,} sentences of {origin}."
    return replace(saved, start_state=state), note


def _write_token_cache(
    model: Path, vocab: Path, out: str | Path | None, overwrite: bool, reporter: Reporter
) -> Conversion:
    if out is None and model.is_file():
        problem = f"{model} is a file, so the cache cannot go inside it."
        raise ConfigError(problem, remedy="Name a folder: OUT.")
    word_cache = importlib.import_module(_WORD_CACHE)
    saved, folder = load_bilm(model), Path(out or model / word_cache.CACHE_FOLDER)
    words = [
        saved.pipeline.word(word) for word in read_vocabulary(vocab) if word not in ("", *THEIR_SPECIALS)
    ]
    if not words:
        raise DataError(f"{vocab} has no words.", remedy="Give a list of words, one per line.")
    with reporter.counting("Computing vectors", total=len(words), unit="words") as advance:
        n_words = word_cache.write_token_cache(
            saved, words, folder, overwrite=overwrite, progress=advance, say=reporter.say
        )
    return Conversion(folder, n_words * saved.model.config.dim, n_words)


# -- word vectors ---------------------------------------------------------------------------------


def _import_vectors(
    source: Path, out: Path, text: TextConfig | None, settings: dict[str, Any], command: str
) -> Conversion:
    changes = {name: settings.pop(name) for name in _TEXT_NAMES & settings.keys()}
    vectors = importlib.import_module(_EXCHANGE).import_vectors(source, text=text, **settings)
    training = {**vectors.training, "command": command}
    vectors = replace(vectors, **merge_settings(changes, text=vectors.text), training=training)
    vectors.save(out)
    n_skipped = training["n_left_out"]
    notes = (f"{n_skipped:,} words that contain a space were skipped.",) if n_skipped else ()
    return Conversion(out, vectors.vectors.size, vectors.n_words, notes)


def _export_vectors(source: Path, out: Path, **options: Any) -> Conversion:
    exchange = importlib.import_module(_EXCHANGE)
    exchange.export_format(out)  # refuses a wrong ending before the table is read
    vectors: Any = load(source)
    exchange.export_vectors(out, vectors, **options)
    return Conversion(out, vectors.vectors.size, vectors.n_words)
