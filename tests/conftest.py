"""What many tests need: a small text, small models, and the program to run on them."""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import settings

from elmokit import Elmo, PretrainConfig, embed, pretrain
from elmokit.bilm.settings import resolve
from elmokit.cli.main import main
from odd_texts import TEXTS, make_model
from program import COLORS, Cli, Outcome, Start, environment
from topics import save_encoder

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The same examples in every run, and no limit on the time of one: machines are shared.
settings.register_profile("elmokit", deadline=None, derandomize=True, database=None)
settings.load_profile("elmokit")

# Files about skip-gram and CBOW, for a Python without wheels of gensim.
if importlib.util.find_spec("gensim") is None:
    collect_ignore = [
        "e2e/test_baseline_command.py",
        "e2e/test_compare_command.py",
        "parity/test_word2vec.py",
    ]
    collect_ignore += ["unit/test_compare_plan.py", "unit/test_static_train.py", "e2e/test_frozen.py"]

_SUBJECTS = ("The old fox", "A small dog", "My sister", "The mayor of Paris", "Nobody", "Our U.S. team")
_ENDINGS = (
    "ran home.",
    "didn't see the 1,000 lights.",
    "bought fresh bread, milk and tea.",
    "is well-known in the town.",
    "asked: why not?",
    "won the match at 10:30!",
    "paid $3.50 for coffee.",
    "sleeps in a naïve café 😀",
    "reads the company's letters.",
    "left when the rain fell on the town.",
)


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .txt file of 60 short sentences, one a line, no two alike."""
    path = tmp_path_factory.mktemp("corpus") / "tiny.txt"
    lines = [f"{subject} {ending}\n" for ending in _ENDINGS for subject in _SUBJECTS]
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_config() -> PretrainConfig:
    """The settings of ``tiny_model``."""
    return resolve(
        "tiny",
        {
            "model": {"dim": 8, "hidden_dim": 8, "filters": ((1, 4), (2, 4))},
            "training": {"epochs": 1, "n_lanes": 4, "window": 8},
            "vocabulary": {"min_count": 1},
        },
    )


@pytest.fixture(scope="session")
def tiny_model(
    tmp_path_factory: pytest.TempPathFactory, tiny_corpus: Path, tiny_config: PretrainConfig
) -> Path:
    """A model folder trained on ``tiny_corpus``. Copy it before changing anything in it."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    pretrain([tiny_corpus], folder, tiny_config)
    return folder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder with random weights that knows the words of ``topics``. Copy it before changing anything."""
    folder = tmp_path_factory.mktemp("encoder") / "random"
    save_encoder(folder)
    return folder


@pytest.fixture(scope="session")
def elmo() -> Elmo:
    """A small model of characters, with random weights."""
    return Elmo(make_model())


@pytest.fixture
def odd_corpus(tmp_path: Path) -> Path:
    """A file of odd texts."""
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    return path


@pytest.fixture
def odd_store(elmo: Elmo, odd_corpus: Path, tmp_path: Path) -> Path:
    """Their vectors on disk, free to be damaged."""
    embed(elmo, odd_corpus, tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The program inside this process: quicker than one of its own."""
    for name in COLORS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "90")

    def run(*words: str | Path, stdin: str = "") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["elmokit", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err)

    return run


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the program; what still runs when the test is over is killed."""
    heed = (  # if shells (or nohup) ignore them
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "hasattr(signal, 'SIGHUP') and signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    )
    started: list[subprocess.Popen[str]] = []

    def begin(
        *words: str | Path, code: str = "from elmokit.cli.main import main; main()"
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", heed + code, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture
def single_thread() -> Iterator[None]:
    """One thread here, as in ``start``, so that sums are taken in the same order."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fitting without a report, which takes a while."""
    monkeypatch.setattr("elmokit.tasks.model_report.write_report", lambda folder, document, record: None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, driven by Playwright; tests that need it are skipped where either is absent."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium on the PATH")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=flags)
        yield started
        started.close()
