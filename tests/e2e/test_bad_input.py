"""Whatever is wrong with the input, the program says what, where and what to do, in two lines."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import shutil
import sys
from collections.abc import Mapping
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
TINY = [
    "--preset=tiny",
    "--dim=8",
    "--set=hidden_dim=8",
    "--set=filters=1:4,2:4",
    "--set=min_count=1",
    "--set=n_lanes=4",
    "--set=window=8",
]
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


def test_line_of_a_megabyte_and_a_word_of_10000_characters_are_trained_on(
    tmp_path: Path, quick: PretrainConfig
) -> None:
    long = "x" * 10_000
    file = write(tmp_path / "line.txt", f"a {long} b\n" + "the cat sat on the mat and slept " * 32_000)
    result = pretrain([file], tmp_path / "m", quick)
    assert result.stopped == "done"
    check_model(tmp_path / "m", "cat", "slept", long)


def test_corpus_shorter_than_one_batch_is_trained_on_with_fewer_lanes(tmp_path: Path, cli: Cli) -> None:
    file = write(tmp_path / "short.txt", "the cat sat\nthe dog ran\n")
    outcome = cli("pretrain", file, "--out", tmp_path / "m", *QUICK, "--set", "n_lanes=64")
    assert outcome.code == 0
    assert "n_lanes is 1 instead of 64" in outcome.out
    check_model(tmp_path / "m", "cat", "dog")


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


def test_files_of_several_formats_in_a_folder_give_the_same_vocabulary(
    tmp_path: Path, quick: PretrainConfig, tiny_model: Path, tiny_corpus: Path
) -> None:
    lines = tiny_corpus.read_text(encoding="utf-8").splitlines()
    write(tmp_path / "in" / "a.txt.gz", gzip.compress("\n".join(lines[:20]).encode()))
    write(tmp_path / "in" / "b" / "c.jsonl", "".join(json.dumps(line) + "\n" for line in lines[20:40]))
    pq.write_table(pa.table({"text": lines[40:]}), tmp_path / "in" / "d.parquet")
    pretrain([tmp_path / "in"], tmp_path / "m", quick)
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


def test_a_file_system_without_locks_is_no_hindrance(
    tmp_path: Path, tiny_corpus: Path, quick: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert pretrain([tiny_corpus], tmp_path / "m", quick).n_steps == 1


@pytest.mark.parametrize("folder", [".", "file.txt"])
def test_corpus_folder_that_cannot_be_made_is_refused(
    tmp_path: Path, cli: Cli, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    write(tmp_path / "here" / "file.txt", "mine")
    monkeypatch.chdir(tmp_path / "here")
    cli("pretrain", tiny_corpus, "--out", tmp_path / "m", "--corpus", folder, *QUICK).check_refused()
    assert snapshot(tmp_path / "here") == {"file.txt": b"mine"}


# -- model folders ----------------------------------------------------------------------------


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


def test_start_from_adds_words_and_refuses_flags_that_change_the_shape(
    tmp_path: Path, cli: Cli, tiny_model: Path
) -> None:
    before = snapshot(tiny_model)
    file = write(tmp_path / "new.txt", "The old fox met a zebra.\nA zebra ran home.\n" * 10)
    words = (file, "--out", tmp_path / "m", "--from", tiny_model, *CONTINUED)
    outcome = cli("pretrain", *words, "--dim", "16", "--set", "lowercase=true")
    outcome.check_refused("--from", "dim", "lowercase")
    assert not (tmp_path / "m").exists()
    assert cli("pretrain", *words).code == 0
    check_model(tmp_path / "m", "zebra", "met", *load_bilm(tiny_model).vocabulary.words)
    assert snapshot(tiny_model) == before


# -- rows of every task -----------------------------------------------------------------------


def lines(*rows: Mapping[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def spans(*places: tuple[int, int]) -> dict[str, object]:
    return {"text": "a bank", "spans": [{"start": start, "end": end, "label": "X"} for start, end in places]}


ASKED, TAGGED = {"question": "who", "passage": "a bank"}, {"tokens": ["bank"], "tags": ["B-X"]}
BAD_ROWS: dict[str, tuple[str, str, str]] = {
    "ragged columns": ("a.conll", "EU NNP B-X\na DT O\n\nbank B-X\n", "line 4: 2 columns where the first"),
    "a tag without a word": ("a.conll", "EU\tB-X\n\na\tO\n\tB-X\n", "line 3: word 2 is empty"),
    "tags without tokens": (
        "a.jsonl",
        lines(TAGGED, {"tokens": [], "tags": ["O"]}),
        "line 2: 0 words, but 1",
    ),
    "spans that overlap": (
        "a.jsonl",
        lines(spans((0, 1)), spans((0, 6), (2, 6))),
        "line 2: two spans overlap",
    ),
    "a span outside": (
        "a.jsonl",
        lines(spans((2, 7))),
        "line 1: the span 2 to 7 is not inside the text of 6",
    ),
    "a span that ends first": ("a.jsonl", lines(spans((3, 2))), "line 1: the span 3 to 2 is not inside"),
    "a one-sided pair": ("a.csv", "text,other,label\na,b,x\na,,y\n", "line 3: the pair has only one text"),
    "a score in words": ("a.csv", "text,other,score\na,b,1\na,b,two\n", "line 3: the score 'two' is not a"),
    "an empty passage": ("a.jsonl", lines({**ASKED, "passage": " ", "answer": ""}), "line 1: the passage is"),
    "an answer elsewhere": (
        "a.jsonl",
        lines({**ASKED, "answer": "goal"}),
        "line 1: the passage does not contain",
    ),
    "thousands of tags": ("a.conll", "".join(f"w T{n}\n" for n in range(3000)), "3,000 different tags"),
    "thousands of spans": (
        "a.conll",
        "".join(f"w B-{n}\n" for n in range(3000)),
        "different tags, more than",
    ),
    "thousands of classes": (
        "a.csv",
        "text,other,label\n" + "".join(f"a,b,c{n}\n" for n in range(3000)),
        "3,000 different labels",
    ),
}


@pytest.mark.parametrize("kind", BAD_ROWS)
def test_rows_that_no_task_can_learn_are_refused_by_file_and_line(
    kind: str, cli: Cli, encoder: Path, tmp_path: Path
) -> None:
    name, content, message = BAD_ROWS[kind]
    file = write(tmp_path / name, content)
    cli("fit", encoder, file, "-o", tmp_path / "model").check_refused(name, message)
    assert not (tmp_path / "model").exists()


def test_a_tag_unseen_in_training_is_refused_for_validation_and_wrong_in_a_test(
    cli: Cli, encoder: Path, tmp_path: Path
) -> None:
    train = write(tmp_path / "train.conll", "bank B-X\nrain O\n\n" * 20)
    new = write(tmp_path / "new.conll", "bank B-X\nrain B-NEW\n\n")
    words = ("fit", encoder, train, "-o", tmp_path / "model", "--head", "linear", "--epochs", "8")
    cli(*words, "--valid", new).check_refused("new.conll, line 1", "validation rows have labels", ": NEW")
    cli(*words, "--test", new, "--set", "lr=0.05").check_fine("test: span F1 0.6667")
    assert "training never saw" in (tmp_path / "model" / "report.md").read_text()
    cli("evaluate", tmp_path / "model", new).check_fine("span F1 0.6667")


@pytest.mark.parametrize("task", ["tag", "pair", "answer"])
def test_a_sentence_of_5000_words_is_learned(task: str, cli: Cli, encoder: Path, tmp_path: Path) -> None:
    long = "we saw " * 2499 + "the bank"
    texts = (long, "a goal")
    rows: dict[str, list[dict[str, object]]] = {
        "tag": [
            {"tokens": (text := one.split()), "tags": ["O"] * (len(text) - 1) + ["B-X"]} for one in texts
        ],
        "pair": [{"text": one, "other": "bank", "label": one[:2]} for one in texts],
        "answer": [{"question": "what", "passage": one, "answer": one.split()[-1]} for one in texts],
    }
    file = write(tmp_path / "a.jsonl", lines(*rows[task]))
    words = ("--epochs", "1", "--set", "head_dim=8", "--valid", file)
    done = cli("fit", encoder, file, "-o", tmp_path / "model", *words)
    done.check_fine("Done", *(["Truncated to 400 words"] if task == "pair" else []))
    cli("predict", tmp_path / "model", file, "-o", tmp_path / "out.jsonl").check_fine()
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(answers) == 2
    assert task != "tag" or len(answers[0]["tags"]) == 5000
