"""A small text and a small model made from it, for every test that needs one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from elmokit import PretrainConfig, pretrain, resolve

# The same examples in every run, and no limit on the time of one: machines are shared.
settings.register_profile("elmokit", deadline=None, derandomize=True, database=None)
settings.load_profile("elmokit")

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
