"""Between the models of others and our folders: ``elmokit convert`` as a function."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm
from elmokit.bilm.model import Bilm
from elmokit.bilm.state import BilmState, average_state
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, ModelError, nearest
from elmokit.core.model_folder import kind_of
from elmokit.core.names import resolve_name
from elmokit.core.run_folder import open_out
from elmokit.corpora import mini_news
from elmokit.published.hdf5 import PICKLE_STARTS
from elmokit.published.many_langs import is_many_langs, load_many_langs
from elmokit.published.official import TEXT, find_official, load_official, save_official
from elmokit.text.corpus import Documents
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig, TextConfig
from elmokit.text.tokenizing import BOS, EOS, SPECIALS, UNK, TextPipeline, replace_surrogates, split_sentences
from elmokit.training.machine import tuned_process

_TOKENS = 16_000
_PICKLES = {".pkl", ".pickle", ".pt", ".pth", ".th", ".bin", ".ckpt", ".joblib"}


@dataclass(frozen=True)
class Conversion:
    """What ``convert`` made.

    Attributes:
        folder: where it is.
        n_parameters: numbers in the model that was written.
        notes: what a person should know about it.
    """

    folder: Path
    n_parameters: int
    notes: list[str]


def convert(
    source: str | Path,
    out: str | Path,
    *,
    to: Literal["elmokit", "official"] = "elmokit",
    vocabulary: str | Path | None = None,
    text: TextConfig | None = None,
    calibrate: Sequence[str | Path] | None = None,
    read: ReadConfig | None = None,
    compact: bool = False,
    reporter: Reporter | None = None,
    command: str = "",
) -> Conversion:
    """Turn a published model into a model folder of ours, or back; or a folder of ours into a smaller one.

    Args:
        source: a published model (its folder or options file), an ELMoForManyLangs folder, or ours.
        out: the folder to make; it must be new or empty.
        to: "elmokit", our folder; or "official", ``options.json``, ``weights.hdf5`` and ``vocab.txt``.
        vocabulary: the word list of a published model that does not lie beside it.
        text: how raw strings become words from now on; ours only.
        calibrate: text to measure the start state of ``state="warm"`` on; None for the English sample that
            comes with elmokit, an empty list for no start state. Ours only.
        read: how the files of ``calibrate`` are read.
        compact: numbers in half precision, and no word predictor: for vectors only.
        reporter: who is told; silent unless given.
        command: the command line, for the model card.
    """
    source, out, reporter = resolve_name(source), Path(out), reporter or Reporter("silent")
    if to not in ("elmokit", "official"):
        raise ConfigError(f"to = {to!r} is not a choice.", remedy=nearest(to, ["elmokit", "official"]))
    open_out(out, "bilm", resume=False)
    is_ours = kind_of(source) is not None
    if is_ours and to == "elmokit" and not compact:
        raise ModelError(
            f"{source} is an elmokit folder already.",
            remedy="To write it for other tools, say --to official; to make it smaller, --compact.",
        )
    if compact and to == "official":
        raise ConfigError(
            "--compact is about folders of elmokit; published files are as they are.",
            remedy="Choose --compact or --to official.",
        )
    if is_ours and vocabulary is not None:
        raise ConfigError(
            f"{source} has its own vocab.txt; another word list is for published models.",
            remedy="Leave --vocab out.",
        )
    if (is_ours or to == "official") and (text is not None or calibrate):
        raise ConfigError(
            "How text is cut into words and the start state are a matter of the model itself."
            if compact
            else "How text is cut into words and the start state have no place in a published model.",
            remedy="Leave these flags out with " + ("--compact." if compact else "--to official."),
        )
    saved = load_bilm(source) if is_ours else load_foreign(source, vocabulary=vocabulary, text=text or TEXT)
    if saved is None:
        raise ModelError(
            f"{source} holds no model that is known here."
            if source.exists()
            else f"There is no file or folder {source}.",
            remedy="Give a folder with options.json and weights.hdf5, the options file itself, an "
            "ELMoForManyLangs folder, or a folder that elmokit pretrain has made.",
        )
    n_parameters = sum(
        parameter.numel()
        for name, parameter in saved.model.named_parameters()
        if to == "elmokit" or not name.startswith("predictor.")
    )
    notes = [] if is_ours else list(saved.training.get("notes", []))
    if to == "official":
        return Conversion(out, n_parameters, [*notes, *save_official(out, saved)])
    if is_ours:
        save_bilm(out, without_predictor(saved), half=True)
        return Conversion(out, _n_parameters(load_bilm(out)), notes)
    if calibrate is None or calibrate:
        saved, note = calibrated(saved, calibrate, read, reporter)
        notes.append(note)
    training = {
        **saved.training,
        "notes": notes,
        "date": datetime.date.today().isoformat(),
        "command": replace_surrogates(command),
        "license": "not stated: that of the published model applies",
    }
    save_bilm(out, replace(saved, training=training), half=compact)
    return Conversion(out, n_parameters, notes)


def without_predictor(saved: BilmFolder) -> BilmFolder:
    """The model without what only a language model needs: it gives vectors, but predicts no word."""
    config = replace(saved.model.config, objective="none", tie=False)
    with torch.device("meta"):
        model = Bilm(config, saved.model.n_words, saved.model.n_pieces)
    kept = dict(saved.model.named_parameters())
    model.load_state_dict(
        {name: kept[name].detach() for name, _ in model.named_parameters()}, strict=False, assign=True
    )
    return replace(saved, model=model.eval())


def _n_parameters(saved: BilmFolder) -> int:
    return sum(parameter.numel() for parameter in saved.model.parameters())


def calibrated(
    saved: BilmFolder,
    texts: Sequence[str | Path] | None = None,
    read: ReadConfig | None = None,
    reporter: Reporter | None = None,
) -> tuple[BilmFolder, str]:
    """The model with the mean state after many sentences as its start state, and a note on where from.

    Args:
        saved: the model.
        texts: files to take sentences from; None for the English sample that comes with elmokit.
        read: how these are read.
        reporter: who is told; silent unless given.
    """
    reporter = reporter or Reporter("silent")
    pipeline = saved.pipeline if texts else TextPipeline(TextConfig())
    listed = {word: place for place, word in enumerate(SPECIALS)}
    ids: list[int] = []
    offsets = [0]
    for text in TextSource(texts or [mini_news()], read if texts else None):
        for sentence in split_sentences(text):
            words = [saved.pipeline.word(word) for word in pipeline.words(sentence)]
            if words:
                inside = [listed.setdefault(word, len(listed)) for word in words]
                ids += [BOS, *(UNK if place < len(SPECIALS) else place for place in inside), EOS]
                offsets.append(len(ids))
        if len(ids) >= _TOKENS:
            break
    if len(offsets) == 1:
        raise ConfigError(
            "The text to measure the start state on holds no word.",
            remedy="Give other text, or --calibrate none.",
        )
    reporter.say(f"[dim]Measuring the start state on {len(ids):,} words (--calibrate none leaves it out).[/]")
    documents = Documents(np.array(ids, dtype=np.uint32), np.array(offsets, dtype=np.int64))
    features = saved.features.rows(list(listed))
    with (
        reporter.counting("Measuring the start state", total=len(ids), unit="words") as advance,
        tuned_process(),
        torch.inference_mode(),
    ):
        state = average_state(saved.model, documents, features, progress=advance)
    plain = BilmState.from_tensors({name: tensor.clone() for name, tensor in state.tensors().items()})
    where = (
        f"of {', '.join(Path(text).name for text in texts)}"
        if texts
        else "of the English sample that comes with elmokit; for other text, convert with --calibrate"
    )
    note = f"The start state of state='warm' is the mean after {len(offsets) - 1:,} sentences {where}."
    return replace(saved, start_state=plain), note


def load_foreign(
    path: Path, *, vocabulary: str | Path | None = None, text: TextConfig = TEXT
) -> BilmFolder | None:
    """The model of a folder or file that elmokit did not write; None if there is nothing known.

    Args:
        path: a folder, or a file of a published model.
        vocabulary: the word list of a published model that does not lie beside it.
        text: how raw strings become words.
    """
    if not path.exists():
        return None
    if path.is_dir() and is_many_langs(path):
        return load_many_langs(path, text=text)
    if find_official(path) is not None:
        return load_official(path, vocabulary=vocabulary, text=text)
    _refuse_pickles(path)
    return None


def _refuse_pickles(path: Path) -> None:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    checkpoints = [file.name for file in files if file.name == "checkpoint" or ".ckpt" in file.name]
    if path.is_dir() and checkpoints:
        raise ModelError(
            f"{path} holds a TensorFlow checkpoint ({', '.join(checkpoints[:3])}), not published weights.",
            remedy="Write weights.hdf5 with the dump_weights program of bilm-tf first.",
        )
    pickles = [file.name for file in files if file.is_file() and _is_pickle(file)]
    if pickles:
        raise ModelError(
            f"{path} is a pickle, which can run any code and is never loaded."
            if path.is_file()
            else f"{path} holds no model but pickles ({', '.join(pickles[:3])}), which can run any code and "
            "are never loaded.",
            remedy="Give options.json and weights.hdf5, an elmokit folder, or an ELMoForManyLangs folder.",
        )


def _is_pickle(file: Path) -> bool:
    if file.suffix.lower() in _PICKLES:
        return True
    try:
        with open(file, "rb") as stream:
            return stream.read(2) in PICKLE_STARTS
    except OSError:
        return False
