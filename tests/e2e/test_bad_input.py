"""Whatever is wrong with the input, the program says what, where and what to do, in two lines."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import shutil
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elmokit import PretrainConfig, pretrain
from elmokit.bilm.folder import load_bilm
from elmokit.core.errors import ElmokitError, RunError
from program import Cli, in_its_own_process

# The flags of the tiny model, and of one that is trained in a moment.
TINY = (
    *(
        "--preset",
        "tiny",
        "--dim",
        "8",
        "--set",
        "hidden_dim=8",
        "--set",
        "filters=1:4,2:4",
        "--set",
        "min_count=1",
    ),
    *("--set", "n_lanes=4", "--set", "window=8"),
)
QUICK = (*TINY, "--set", "max_steps=1", "--set", "held_out=0")


@pytest.fixture
def quick(tiny_config: PretrainConfig) -> PretrainConfig:
    return replace(tiny_config, training=replace(tiny_config.training, max_steps=1, held_out=0.0))


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model, free to be damaged."""
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def check_model(folder: Path, *words: str) -> None:
    vocabulary = load_bilm(folder).vocabulary
    assert [word for word in words if word not in vocabulary] == []


# -- files that cannot be used ----------------------------------------------------------------

TABLE = "title,body\nOne,first text\n"
FILES: dict[str, tuple[str, str | bytes, tuple[str, ...], tuple[str, ...]]] = {
    # the file, its content, flags, and what the error says besides the name of the file
    "blank lines": ("a.txt", " \n\n\t\n" * 50, (), ("no word",)),
    "latin-1": (
        *("a.txt", "one line\nun café noir\n".encode("latin-1"), ()),
        (", line 2, byte 15: 0xe9", "--encoding", "--set errors=replace"),
    ),
    "binary": ("a.txt", b"\x89PNG\r\n\x1a\n" + bytes(range(32)) * 50, (), ("binary",)),
    "noise": ("a.txt", random.Random(0).randbytes(5000), ("--encoding", "latin-1"), ("binary",)),
    "missing column": ("a.csv", TABLE, ("--text-columns", "bdy"), ("no column 'bdy'", "mean 'body'?")),
    "ragged table": ("a.csv", "n,text\n1,one\n2,two, or more\n", (), (", line 3", "3 fields", "quoted")),
    "unclosed quote": ("a.csv", 'n,text\n1,"one\n2,two\n', (), (", line 3", "quote")),
    "bad JSON": ("a.jsonl", '{"text": "one"}\n{"text": "two"\n', (), (", line 2", "JSON")),
    "cut-off gzip": ("a.txt.gz", gzip.compress(b"the cat sat on the mat\n")[:-12], (), ("truncated",)),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path: Path, cli: Cli, kind: str) -> None:
    name, content, flags, parts = FILES[kind]
    file = write(tmp_path / name, content)
    outcome = cli("pretrain", file, "--out", tmp_path / "m", *QUICK, *flags)
    outcome.check_refused(*(f"{file}{part}" if part.startswith(",") else part for part in parts), file)


def test_empty_and_missing_files_are_refused_by_name(tmp_path: Path, cli: Cli) -> None:
    file = write(tmp_path / "corpus.txt", b"")
    in_its_own_process("pretrain", file, "--out", tmp_path / "m", *QUICK).check_refused("no word", file)
    outcome = cli("pretrain", tmp_path / "corpsu.txt", "--out", tmp_path / "m", *QUICK)
    outcome.check_refused("corpsu.txt", "Did you mean 'corpus.txt'?")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("all words here are rare\n", ("0 of 5 distinct words", "at least 5 times", "min_count")),
        ("cat cat cat\n" * 20, ("1 of 1 distinct words", "more text")),
    ],
)
def test_too_few_words_are_refused(tmp_path: Path, cli: Cli, text: str, parts: tuple[str, ...]) -> None:
    file = write(tmp_path / "few.txt", text)
    cli("pretrain", file, "--out", tmp_path / "m", *QUICK, "--set", "min_count=5").check_refused(*parts)


def test_encoding_and_errors_flags_make_other_text_work(tmp_path: Path, cli: Cli) -> None:
    file = write(tmp_path / "latin.txt", "un café noir et un café blanc\n".encode("latin-1"))
    assert cli("pretrain", file, "--out", tmp_path / "a", *QUICK, "--encoding", "latin-1").code == 0
    assert cli("pretrain", file, "--out", tmp_path / "b", *QUICK, "--set", "errors=replace").code == 0
    check_model(tmp_path / "a", "café")
    check_model(tmp_path / "b", "noir")


@pytest.mark.parametrize("encoding", ["utf-16", "klingon"])
def test_encoding_that_does_not_fit_the_file_is_refused(
    tmp_path: Path, cli: Cli, encoding: str, tiny_corpus: Path
) -> None:
    outcome = cli("pretrain", tiny_corpus, "--out", tmp_path / "m", *QUICK, "--set", f"encoding={encoding}")
    outcome.check_refused(encoding)


# -- wrong settings ---------------------------------------------------------------------------


def test_wrong_toml_field_is_refused_with_file_and_nearest(
    tmp_path: Path, cli: Cli, tiny_corpus: Path
) -> None:
    file = write(tmp_path / "my.toml", "[model]\nhiden_dim = 8\n")
    outcome = cli("pretrain", tiny_corpus, "--out", tmp_path / "m", "--config", file)
    outcome.check_refused("'hiden_dim'", "Did you mean 'hidden_dim'?", file)


def test_unknown_flag_ends_with_code_2(tmp_path: Path, tiny_corpus: Path) -> None:
    outcome = in_its_own_process("pretrain", tiny_corpus, "--out", tmp_path / "m", "--epoch", "3")
    assert outcome.code == 2
    assert "--epoch" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--preset", "smal"], "Did you mean 'small'?"),
        (["--dim", "0"], "dim"),
        (["--set", "held_out=0.9"], "held_out"),
        (["--input", "chars"], "Did you mean 'char'?"),
        (["--set", "filters=1-4"], "1:32,2:32"),
        (["--max-time", "soon"], "45m"),
        (["--pipeline", "clasic"], "Did you mean 'classic'?"),
        (["--set", "tie=true"], "tie"),
    ],
)
def test_wrong_value_is_refused_before_anything_is_made(
    tmp_path: Path, cli: Cli, tiny_corpus: Path, flags: list[str], part: str
) -> None:
    outcome = cli("pretrain", tiny_corpus, "--out", tmp_path / "m", *QUICK, *flags)
    assert outcome.code == 2
    assert part in outcome.err
    assert not (tmp_path / "m").exists()


# -- odd text that works ----------------------------------------------------------------------


def test_line_of_a_megabyte_is_trained_on(tmp_path: Path, quick: PretrainConfig) -> None:
    file = write(tmp_path / "line.txt", "the cat sat on the mat and slept " * 32_000)
    result = pretrain([file], tmp_path / "m", quick)
    assert result.stopped == "done"
    check_model(tmp_path / "m", "cat", "slept")


def test_word_of_10000_characters_is_trained_on(
    tmp_path: Path, quick: PretrainConfig, tiny_corpus: Path
) -> None:
    file = write(
        tmp_path / "long.txt", "a " + "x" * 10_000 + " b\n" + tiny_corpus.read_text(encoding="utf-8")
    )
    pretrain([file], tmp_path / "m", quick)
    check_model(tmp_path / "m", "x" * 10_000)


def test_corpus_shorter_than_one_batch_is_trained_on_with_fewer_lanes(tmp_path: Path, cli: Cli) -> None:
    file = write(tmp_path / "short.txt", "the cat sat\nthe dog ran\n")
    outcome = cli("pretrain", file, "--out", tmp_path / "m", *QUICK, "--set", "n_lanes=64")
    assert outcome.code == 0
    assert "n_lanes is 1 instead of 64" in outcome.out
    check_model(tmp_path / "m", "cat", "dog")


def test_single_text_is_trained_on_whatever_its_hash(tmp_path: Path, tiny_config: PretrainConfig) -> None:
    numbers = (number for number in range(9999) if zlib.crc32(f"text {number} of a text".encode()) < 2**26)
    file = write(tmp_path / "single.txt", f"text {next(numbers)} of a text\n")  # held out by its hash
    assert pretrain([file], tmp_path / "m", tiny_config).stopped == "done"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="file names are text elsewhere")
def test_file_name_that_is_not_utf8_is_trained_on(
    tmp_path: Path, quick: PretrainConfig, tiny_corpus: Path
) -> None:
    file = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    shutil.copy(tiny_corpus, file)
    assert pretrain([file], tmp_path / "m", quick).stopped == "done"


# -- other ways for text to come --------------------------------------------------------------


def test_standard_input_is_trained_on(tmp_path: Path, tiny_corpus: Path) -> None:
    outcome = in_its_own_process(
        "pretrain", "-", "--out", tmp_path / "m", *QUICK, stdin=tiny_corpus.read_bytes()
    )
    assert (outcome.code, outcome.err) == (0, "")
    check_model(tmp_path / "m", "fox", "café")


@pytest.mark.parametrize("kind", ["gz", "zst", "parquet", "folder", "pattern"])
def test_other_inputs_give_the_same_vocabulary(
    tmp_path: Path, quick: PretrainConfig, tiny_model: Path, tiny_corpus: Path, kind: str
) -> None:
    content, text = tiny_corpus.read_bytes(), tiny_corpus.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    source: str | Path
    if kind == "gz":
        source = write(tmp_path / "a.txt.gz", gzip.compress(content))
    elif kind == "zst":
        source = write(tmp_path / "a.txt.zst", pa.compress(content, codec="zstd", asbytes=True))
    elif kind == "parquet":
        source = tmp_path / "a.parquet"
        pq.write_table(pa.table({"text": text.splitlines()}), source)
    else:
        write(tmp_path / "in" / "a.txt", "".join(lines[:20]))
        write(tmp_path / "in" / "b" / "c.jsonl", "".join(json.dumps(line) + "\n" for line in lines[20:]))
        source = tmp_path / "in" if kind == "folder" else f"{tmp_path}/in/**/*.*"
    pretrain([source], tmp_path / "m", quick)
    assert set(load_bilm(tmp_path / "m").vocabulary.words) == set(load_bilm(tiny_model).vocabulary.words)


def test_folder_name_in_brackets_is_shown_as_it_is(tmp_path: Path, cli: Cli, tiny_corpus: Path) -> None:
    outcome = cli("pretrain", tiny_corpus, "--out", tmp_path / "elmo[bold]", *QUICK)
    assert outcome.code == 0
    assert "elmo[bold]." in outcome.out


# -- the output folder ------------------------------------------------------------------------


def test_folder_that_is_not_ours_is_refused_and_untouched(
    tmp_path: Path, cli: Cli, tiny_corpus: Path
) -> None:
    write(tmp_path / "mine" / "README.md", "my notes")
    before = snapshot(tmp_path / "mine")
    outcome = cli("pretrain", tiny_corpus, "--out", tmp_path / "mine", *QUICK)
    outcome.check_refused(tmp_path / "mine", "does not hold a pretraining run")
    assert snapshot(tmp_path / "mine") == before


def test_folder_that_another_process_works_in_is_refused(tmp_path: Path, cli: Cli, tiny_corpus: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / "m" / "run").mkdir(parents=True)
    with open(tmp_path / "m" / "run" / ".lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        outcome = cli("pretrain", tiny_corpus, "--out", tmp_path / "m", *QUICK)
        outcome.check_refused(tmp_path / "m", "Another process is using")
    assert cli("pretrain", tiny_corpus, "--out", tmp_path / "m", *QUICK).code == 0


def test_a_file_system_without_locks_is_no_hindrance(
    tmp_path: Path, tiny_corpus: Path, quick: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert pretrain([tiny_corpus], tmp_path / "m", quick).n_steps == 1


def test_output_that_is_a_file_is_refused(tmp_path: Path, cli: Cli, tiny_corpus: Path) -> None:
    file = write(tmp_path / "m", "mine")
    cli("pretrain", tiny_corpus, "--out", file, *QUICK).check_refused(file, "is a file")
    cli("pretrain", tiny_corpus, "--out", file / "sub", *QUICK).check_refused(file / "sub")
    assert file.read_bytes() == b"mine"


def test_corpus_folder_that_is_not_ours_is_refused_and_untouched(
    tmp_path: Path, cli: Cli, tiny_corpus: Path
) -> None:
    file = write(tmp_path / "texts" / "a.txt", tiny_corpus.read_bytes())
    outcome = cli("pretrain", file, "--out", tmp_path / "m", "--corpus", tmp_path / "texts", *QUICK)
    assert file.exists()
    outcome.check_refused(tmp_path / "texts")


@pytest.mark.parametrize("folder", [".", "file.txt"])
def test_corpus_folder_that_cannot_be_made_is_refused(
    tmp_path: Path, cli: Cli, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    write(tmp_path / "here" / "file.txt", "mine")
    monkeypatch.chdir(tmp_path / "here")
    cli("pretrain", tiny_corpus, "--out", tmp_path / "m", "--corpus", folder, *QUICK).check_refused()
    assert snapshot(tmp_path / "here") == {"file.txt": b"mine"}


# -- model folders ----------------------------------------------------------------------------


def test_folder_without_a_model_is_refused(tmp_path: Path, cli: Cli) -> None:
    cli("inspect", tmp_path / "nowhere").check_refused("no model folder", tmp_path / "nowhere")
    cli("inspect", tmp_path).check_refused(tmp_path, "config.json")


def test_unfinished_run_is_refused_with_the_way_to_finish_it(model: Path, cli: Cli) -> None:
    (model / "config.json").unlink()
    cli("inspect", model).check_refused(model, "same pretrain command")


@pytest.mark.parametrize(
    "content",
    [
        '{"architectures": ["BertModel"], "model_type": "bert"}',
        "[]",
        '{"format": "elmokit"',
        "\xff",
    ],
)
def test_foreign_or_damaged_config_is_refused_by_name(model: Path, cli: Cli, content: str) -> None:
    write(model / "config.json", content.encode("latin-1"))
    cli("inspect", model).check_refused(model / "config.json")


def test_model_without_its_card_and_run_still_opens(model: Path) -> None:
    (model / "README.md").unlink()
    shutil.rmtree(model / "run")
    check_model(model, "fox")


# -- going on ---------------------------------------------------------------------------------


def test_resumed_run_with_other_settings_is_refused_and_says_which(
    model: Path, cli: Cli, tiny_corpus: Path
) -> None:
    before = snapshot(model)
    outcome = cli("pretrain", tiny_corpus, "--out", model, *TINY, "--epochs", "1", "--set", "max_steps=3")
    outcome.check_refused(model, "max_steps was None, now 3", "--out")
    assert "the text" not in outcome.err
    assert snapshot(model) == before


def test_resumed_run_with_other_text_is_refused_and_goes_on_with_the_old(
    tmp_path: Path, quick: PretrainConfig, tiny_corpus: Path
) -> None:
    file = write(tmp_path / "text.txt", tiny_corpus.read_bytes())
    pretrain([file], tmp_path / "m", quick)
    other = write(tmp_path / "other.txt", tiny_corpus.read_bytes() + b"One more line.\n")
    with pytest.raises(RunError, match="the text changed") as caught:
        pretrain([other], tmp_path / "m", quick)
    assert caught.value.remedy
    assert pretrain([file], tmp_path / "m", quick).stopped == "done"


def test_finished_run_started_again_changes_nothing(
    model: Path, tiny_config: PretrainConfig, tiny_corpus: Path
) -> None:
    before = (model / "model.safetensors").read_bytes()
    assert pretrain([tiny_corpus], model, tiny_config).stopped == "done"
    assert (model / "model.safetensors").read_bytes() == before


def test_run_inside_its_own_text_folder_can_be_started_again(
    tmp_path: Path, quick: PretrainConfig, tiny_corpus: Path
) -> None:
    write(tmp_path / "texts" / "a.txt", tiny_corpus.read_bytes())
    for _ in range(2):
        assert pretrain([tmp_path / "texts"], tmp_path / "texts" / "model", quick).stopped == "done"


@pytest.mark.parametrize("name", ["settings.json", "checkpoint.safetensors"])
def test_damaged_run_is_refused_by_name(
    model: Path, tiny_config: PretrainConfig, tiny_corpus: Path, name: str
) -> None:
    file = model / "run" / name
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(ElmokitError, match=name):
        pretrain([tiny_corpus], model, tiny_config)


# -- starting from a model --------------------------------------------------------------------

CONTINUED = ("--set", "n_lanes=4", "--set", "window=8", "--set", "max_steps=2", "--set", "held_out=0")


def test_start_from_goes_on_with_new_text_and_adds_its_words(
    tmp_path: Path, cli: Cli, tiny_model: Path
) -> None:
    before = snapshot(tiny_model)
    file = write(tmp_path / "new.txt", "The old fox met a zebra.\nA zebra ran home.\n" * 10)
    outcome = cli("pretrain", file, "--out", tmp_path / "m", "--from", tiny_model, *CONTINUED)
    assert outcome.code == 0, outcome.err
    old, new = load_bilm(tiny_model), load_bilm(tmp_path / "m")
    n_old = len(old.vocabulary)
    assert new.vocabulary.words[:n_old] == old.vocabulary.words
    assert new.vocabulary.words[n_old:] == ["zebra", "met"]
    assert new.model.config == old.model.config
    changed = [
        name
        for name, weights in new.model.state_dict().items()
        if not weights[: len(old.model.state_dict()[name])].equal(old.model.state_dict()[name])
    ]
    assert changed
    assert snapshot(tiny_model) == before


def test_start_from_refuses_flags_that_change_the_shape(
    tmp_path: Path, cli: Cli, tiny_model: Path, tiny_corpus: Path
) -> None:
    words = ("--out", tmp_path / "m", "--from", tiny_model, "--dim", "16", "--set", "lowercase=true")
    outcome = cli("pretrain", tiny_corpus, *words, *CONTINUED)
    outcome.check_refused("--from", "dim", "lowercase")
    assert not (tmp_path / "m").exists()


def test_start_from_a_folder_that_is_no_model_is_refused(tmp_path: Path, cli: Cli, tiny_corpus: Path) -> None:
    words = ["--out", tmp_path / "m", "--from", tiny_corpus.parent, *CONTINUED]
    cli("pretrain", tiny_corpus, *words).check_refused(tiny_corpus.parent)
    assert not (tmp_path / "m").exists()
