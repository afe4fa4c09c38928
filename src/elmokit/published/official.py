"""Published ELMo models: ``options.json`` + ``weights.hdf5`` (+ ``vocab.txt``), read and written."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from elmokit.bilm.folder import BilmFolder, weights_of
from elmokit.bilm.model import Bilm
from elmokit.core.atomic import staging, write_text
from elmokit.core.errors import ModelError
from elmokit.published.hdf5 import open_arrays, require_h5py, write_arrays
from elmokit.published.layout import official_layout
from elmokit.published.options import checked_layout, model_config, options_of, read_options
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import BOS, EOS, SPECIALS, UNK, TextPipeline
from elmokit.text.vocabulary import N_CHARACTERS, Vocabulary

TEXT = TextConfig(unicode="none", unit="sentence")
"""How raw text becomes words by default: characters unchanged, words found by rule."""
THEIR_SPECIALS = {"<S>": BOS, "</S>": EOS, "<UNK>": UNK}
_NOT_A_WORD = "!!!MAXTERMID"  # a line in some vocabulary files
_HDF5 = (".hdf5", ".h5")


class OfficialFiles(NamedTuple):
    """The files of one published model."""

    options: Path
    weights: Path
    vocabulary: Path | None


def find_official(path: Path) -> OfficialFiles | None:
    """The files of a published model, given its folder, options file or weight file; None if it is neither.

    An incomplete model, or several in one folder, is an error.
    """
    ending = path.suffix.lower() if path.is_file() else ""
    if not path.is_dir() and ending not in (".json", *_HDF5):
        return None
    folder = path if path.is_dir() else path.parent
    files = sorted(file for file in folder.iterdir() if file.is_file())

    def matching(word: str, *endings: str) -> list[Path]:
        return [file for file in files if word in file.name.lower() and file.suffix.lower() in endings]

    options = [path] if ending == ".json" else matching("options", ".json")
    weights = [path] if ending in _HDF5 else matching("weights", *_HDF5) or matching("", *_HDF5)
    names = ", ".join(file.name for file in options + weights)
    if not names:
        return None
    if not options or not weights:
        missing = "options (*options*.json)" if weights else "weights (*weights*.hdf5)"
        raise ModelError(
            f"{folder} holds {names} but no {missing}.",
            remedy="A published ELMo model is options.json and weights.hdf5: put both in one folder.",
        )
    pairs = list(itertools.product(options, weights))
    if len(pairs) > 1:
        pairs = [pair for pair in pairs if _stem(pair[0]) == _stem(pair[1])]
    if len(pairs) != 1:
        raise ModelError(
            f"{folder} holds more than one model, or files whose names do not show which belong together: "
            f"{names}.",
            remedy="Give the options file of one model: NAME_options.json beside NAME_weights.hdf5.",
        )
    lists = matching("vocab", ".txt")
    lists = [file for file in lists if file.name.lower() == "vocab.txt"] or lists
    return OfficialFiles(*pairs[0], lists[0] if len(lists) == 1 else None)


def _stem(file: Path) -> str:
    """A file name without its ending and the words "options" and "weights"."""
    return file.stem.lower().replace("options", "").replace("weights", "").strip("._-")


def load_official(
    path: str | Path, *, vocabulary: str | Path | None = None, text: TextConfig = TEXT
) -> BilmFolder:
    """Open a published model.

    Args:
        path: Its folder, options file or weight file.
        vocabulary: Its word list, if that is not beside them as ``vocab.txt``.
        text: How raw strings become words.
    """
    files = find_official(Path(path))
    if files is None:
        remedy = "Give a folder that holds options.json and weights.hdf5, or one of these files."
        raise ModelError(f"{path} is not a published ELMo model.", remedy=remedy)
    require_h5py()
    options = read_options(files.options)
    list_file = Path(vocabulary) if vocabulary is not None else files.vocabulary
    lines = read_vocabulary(list_file) if list_file is not None else []
    tensors = {}
    with open_arrays(files.weights) as weights:
        config, n_rows, notes = model_config(options, files.options, weights)
        entries = checked_layout(config, n_rows, files.options, weights)
        if config.input == "word" and list_file is None:
            raise ModelError(
                f"{files.weights} is a word-input model, which needs its word list, but there is no "
                f"vocab.txt in {files.weights.parent}.",
                remedy="Put the model's vocab.txt beside it, or name it with --vocab.",
            )
        if config.input == "word" and len(lines) != n_rows:
            raise ModelError(
                f"{list_file} has {len(lines):,} words, but {files.weights} has {n_rows:,} rows for words.",
                remedy="Give the word list that the model was trained with.",
            )
        for entry in entries:
            values = weights.read(entry.name)
            if entry.name == "char_embed" and len(values) == N_CHARACTERS:
                in_front = not values[0].any()
                reason = "the first, all zero, is for padding" if in_front else "the last is not used"
                notes.append(f"char_embed has {len(values)} rows instead of {N_CHARACTERS - 1}: {reason}.")
                values = values[1:] if in_front else values[:-1]
            for name, array in zip(entry.parameters, entry.read(values), strict=True):
                tensors[name] = torch.from_numpy(np.ascontiguousarray(array))
        if extra := sorted(weights.shapes.keys() - {entry.name for entry in entries}):
            notes.append(f"{files.weights.name} also holds {', '.join(extra)[:200]}, which is not used.")
    words, rows = _our_words(lines, notes)
    if config.input == "word":
        index = torch.tensor(rows)
        tensors["encoder.weight"] = tensors["encoder.weight"][index.clamp(min=0)] * (index >= 0).unsqueeze(1)
        if missing := [SPECIALS[place] for place in (UNK, BOS, EOS) if rows[place] < 0]:
            notes.append(f"The word list lacks {', '.join(missing)}: a vector of zeros is used instead.")
    with torch.device("meta"):
        model = Bilm(config, len(words))
    model.load_state_dict(tensors, strict=True, assign=True)
    source = {"format": "official", "files": [files.options.name, files.weights.name], "options": options}
    tokenizer = TextPipeline(text).word_tokenizer(words)
    return BilmFolder(model.eval(), text, Vocabulary(words), tokenizer, {"source": source, "notes": notes})


def read_vocabulary(path: Path) -> list[str]:
    """The words of a list, one per line, as the published tools read them."""
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except OSError as error:
        raise ModelError(f"Cannot read {path}: {error.strerror}.", remedy="Check the path.") from error
    except UnicodeDecodeError as error:
        raise ModelError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.",
            remedy="Give a list of words, one per line, in UTF-8.",
        ) from error
    words = [line.strip() for line in lines]
    if not words[-1]:
        words.pop()  # the file ends with a newline
    return [word for word in words if word != _NOT_A_WORD]


def _our_words(lines: list[str], notes: list[str]) -> tuple[list[str], list[int]]:
    """Our vocabulary, specials first, and the line that each word comes from; -1 for none."""
    places = {word: line for line, word in enumerate(lines)}  # of equal words the last, as their tools do
    if n_repeated := len(lines) - len(places):
        notes.append(f"{n_repeated:,} words appear more than once in the word list; the last line counts.")
    theirs = {place: name for name, place in THEIR_SPECIALS.items()}
    specials = [places.get(theirs.get(n, name), places.get(name, -1)) for n, name in enumerate(SPECIALS)]
    words = sorted(set(places).difference(SPECIALS, THEIR_SPECIALS), key=places.__getitem__)
    return [*SPECIALS, *words], [*specials, *(places[word] for word in words)]


def save_official(folder: str | Path, saved: BilmFolder) -> list[str]:
    """Write a model as ``options.json``, ``weights.hdf5`` and ``vocab.txt`` for tools that read these.

    Returns:
        Notes on what the format cannot hold, and what some tools cannot read.
    """
    config = saved.model.config
    if config.input not in ("char", "word"):
        raise ModelError(
            f"A model with {config.input} input cannot be written as a published ELMo model: that format "
            "has character input (bytes) and word tables only.",
            remedy="Pretrain with --input char or --input word to get a model that can be exported.",
        )
    require_h5py()
    words, excluded = saved.vocabulary.words, {*SPECIALS, *THEIR_SPECIALS, _NOT_A_WORD}
    kept = [place for place, word in enumerate(words) if word not in excluded and word.strip() == word]
    rows = [*THEIR_SPECIALS.values(), *kept]
    parameters = weights_of(saved.model)
    if config.input == "word":
        parameters["encoder.weight"] = parameters["encoder.weight"][rows]
    entries = official_layout(config, len(rows))
    arrays = (
        (entry.name, entry.write(*(parameters[name].float().numpy() for name in entry.parameters)))
        for entry in entries
    )
    source = saved.training.get("source") or {}
    options = options_of(config, source.get("options") if source.get("format") == "official" else None)
    n_bytes = 4 * sum(math.prod(entry.shape) for entry in entries)
    with staging(Path(folder), "options.json") as staged:
        write_arrays(staged / "weights.hdf5", arrays, n_bytes)
        lines = [*THEIR_SPECIALS, *(words[place] for place in kept)]
        write_text(staged / "vocab.txt", "".join(f"{line}\n" for line in lines))
        write_text(staged / "options.json", json.dumps(options, indent=2, ensure_ascii=False) + "\n")
    notes = {
        "The word predictor is left out: the format has no place for it.": config.objective != "none",
        "The start state is left out: the format has no place for it.": saved.start_state is not None,
        "The rules for text are left out: give the other tool the same words.": saved.text != TEXT,
        "AllenNLP cannot read it: it reads projected models only.": config.hidden_dim <= config.dim,
        "AllenNLP cannot read it: it reads residual models only.": not config.residual,
        "AllenNLP cannot read it: it reads character-input models only.": config.input == "word",
    }
    return [note for note, applies in notes.items() if applies]
