"""Settings on the command line: flags, --set, --config, --help-all, and what is refused."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from pathlib import Path
from typing import get_args

import pytest
import torch
from typer.models import OptionInfo

from elmokit.cli.main import VERBS
from elmokit.cli.options import command_line, next_command
from elmokit.core.names import MODELS
from program import Cli, in_its_own_process

ALWAYS_SHOWN = {"as_json": "--json", "help_all": "--help-all", "set_": "--set"} | {
    name: f"--{name}" for name in ("out", "config", "overwrite", "threads")
}


def listed(help: str) -> list[str]:
    """The options in a page of help."""
    return re.findall(r"^│ \*? *(--?[a-z-]+)", help, re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_at_most_twenty_options_and_those_that_errors_name(
    cli: Cli, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    page = cli(verb, "--help").out
    shown = listed(page)
    assert 1 <= len(shown) <= 20, shown
    module = importlib.import_module(f"elmokit.cli.{verb}")
    parameters = inspect.signature(module.command, eval_str=True).parameters
    options = {
        name for name, one in parameters.items() if isinstance(get_args(one.annotation)[1], OptionInfo)
    }
    assert {"--help", *(flag for name, flag in ALWAYS_SHOWN.items() if name in options)} <= {*shown}
    usage = next(line for line in page.splitlines() if "Usage:" in line)
    assert not re.search(r"[{}<]|\.\.\.\]?\.", usage), usage
    assert not re.findall(r"<(?:str|path|Path|int|float|bool|list)", page)
    assert module.__doc__


def test_help_of_one_verb_does_not_change_that_of_another(cli: Cli) -> None:
    alone = in_its_own_process("baseline", "--help").out
    for verb in VERBS:
        cli(verb, "--help")
    assert listed(cli("baseline", "--help").out) == listed(alone)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--set", "lrr=1"), ("no setting 'lrr'", "Did you mean 'lr'?")),
        (("--set", "model.lr=1"), ("no setting 'model.lr'", "training.lr")),
        (("--set", "lr"), ("--set lr has no value", "--set lr=VALUE")),
        (("--set", "lr=fast"), ("lr = 'fast' must be of type float",)),
        (("--set", "residual=perhaps"), ("residual = 'perhaps' must be of type bool",)),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    cli: Cli, words: tuple[str, ...], parts: tuple[str, ...], tmp_path: Path, tiny_corpus: Path
) -> None:
    outcome = cli("pretrain", tiny_corpus, "--out", tmp_path / "m", *words)
    assert outcome.code == 2
    for part in parts:
        assert part in outcome.err
    assert not (tmp_path / "m").exists()


def test_flags_win_over_set_and_set_over_the_file(cli: Cli, tmp_path: Path, tiny_corpus: Path) -> None:
    (tmp_path / "settings.toml").write_text(
        "[model]\ndim = 4\nhidden_dim = 4\nfilters = [[1, 4]]\n[training]\nmax_steps = 1\nwindow = 3\n"
        "[vocabulary]\nmin_count = 1\n"
    )
    settings = ("--config", tmp_path / "settings.toml", "--set", "model.dim=6", "--set", "window=5")
    more = ("--hidden-dim", "6", "--set", "max_time=none", "--dim", "8")
    done = cli("pretrain", tiny_corpus, "--out", tmp_path / "m", "--preset", "tiny", *settings, *more)
    assert done.code == 0, done.err
    shown = cli("inspect", tmp_path / "m").out
    assert "8 wide each way, 6 cells" in shown


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "inspect"])
def test_every_verb_that_computes_has_threads(cli: Cli, verb: str) -> None:
    assert "threads" in inspect.signature(importlib.import_module(f"elmokit.cli.{verb}").command).parameters
    refused = cli(verb, "--threads", "0")
    assert refused.code == 2
    assert "--threads" in refused.err


def test_threads_are_set_before_anything_is_computed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_threads = torch.get_num_threads()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    try:
        cli("verify", tmp_path, tmp_path, "--threads", "3").check_refused()
        assert (torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]) == (3, "3")
    finally:
        torch.set_num_threads(n_threads)


def test_help_all_lists_every_setting(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    cli("fit", "--help-all").check_fine("--label-smoothing", "--mix-activation", "--threads", "[labels]")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("[fit]\nepochs = -1\n", ["epochs = -1 is out of range"]),
        ("[fitt]\nepochs = 1\n", ["unknown section 'fitt'", "Did you mean 'fit'?"]),
    ],
)
def test_a_file_of_settings_has_the_sections_of_the_verb(
    cli: Cli, content: str, parts: list[str], tmp_path: Path
) -> None:
    (tmp_path / "my.toml").write_text(content, encoding="utf-8")
    words = ("english", tmp_path / "rows.csv", "--out", tmp_path / "m", "--config", tmp_path / "my.toml")
    outcome = cli("fit", *words)
    assert outcome.code == 2
    assert all(part in outcome.err for part in parts), outcome.err


def test_bundled_models_go_by_their_names_in_commands_to_type_next() -> None:
    assert next_command("search", MODELS / "english", Path("a b")) == "elmokit search english 'a b'"


@pytest.mark.parametrize(
    ("words", "recorded"),
    [
        (("--valid=/abs/test.csv", "-o/abs/x"), "--valid=test.csv -ox"),
        (("--config", "/abs/a.toml", "--config=/abs/b.toml"), "--config a.toml --config=b.toml"),
        (("--with=st:/abs/x", "vectors:/a/b.npy,/a/c.npy"), "--with=st:x vectors:b.npy,c.npy"),
        (("--lr=0.1", "-o", "x/", "rel/a.csv"), "--lr=0.1 -o x a.csv"),
    ],
)
def test_recorded_commands_keep_names_of_options_and_drop_folders(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], recorded: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["elmokit", *words])
    assert command_line() == f"elmokit {recorded}"


def test_commands_say_how_tables_are_read(cli: Cli, tiny_model: Path, tmp_path: Path) -> None:
    table, said = tmp_path / "t.csv", "header: text, sense; text column: text"
    table.write_text("text,sense\n" + "the bank rose,1\na bank fell,2\n" * 3, encoding="utf-8")
    cli("similar", tiny_model, "the bank", "--in", table).check_fine(said)
    words = ("senses", tiny_model, "bank", "--in", table, "--text-columns", "text")
    cli(*words, "--labeled", table).check_fine(f"{said}; label column: sense")
    distilled = ("distill", tiny_model, table, "--from", tiny_model, "--epochs", "1", "--out", tmp_path / "d")
    cli(*distilled).check_fine(said)


@pytest.mark.parametrize("verb", ["distill", "fit"])
def test_a_learning_rate_that_overflows_is_refused(cli: Cli, verb: str, tmp_path: Path) -> None:
    words = (verb, "english", "x.csv", "--out", tmp_path, "--set", "lr=1e38")
    done = cli(*words)
    assert (done.code, "lr = 1e+38 is out of range: it must be" in done.err) == (2, True)
