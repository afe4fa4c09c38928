"""Ten times the text must not take more memory."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from elmokit.corpora import mini_news

_PREPARE = """
import json, sys
from pathlib import Path
from elmokit.text.settings import TextConfig, VocabularyConfig
from elmokit.text import corpus
from elmokit.text.corpus import CorpusSettings, prepare_corpus
from elmokit.text.rows import TextSource
corpus._BATCH_CHARS = 1 << 18  # small enough for the smaller text to fill several
settings = CorpusSettings(TextConfig(), VocabularyConfig(), open_words=True, held_out=0.02)
made = prepare_corpus(Path(sys.argv[2]), settings, TextSource([sys.argv[1]]))
status = Path("/proc/self/status").read_text().splitlines()
peak = int(next(line.split()[1] for line in status if line.startswith("VmHWM")))  # KiB
print(json.dumps([made.n_words, peak]))
"""


def _prepare(text: Path) -> tuple[int, int]:
    command = [sys.executable, "-c", _PREPARE, str(text), str(text.with_suffix(".corpus"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    n_words, peak = json.loads(done.stdout)
    return n_words, peak


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_preparing_ten_times_the_text_takes_hardly_more_memory(tmp_path: Path) -> None:
    lines = [line.partition(",")[2] for line in mini_news().read_text(encoding="utf-8").splitlines()[1:]]
    choose = random.Random(0)
    found = []
    for n_copies in (10, 100):
        text = tmp_path / f"{n_copies}.txt"
        with open(text, "w", encoding="utf-8") as file:
            for _ in range(n_copies):
                file.writelines(line + "\n" for line in choose.sample(lines, len(lines)))
        found.append(_prepare(text))
    (few, small), (many, large) = found
    assert 9 < many / few < 11
    # 5 % of what the process took when it loaded torch, which it no longer does.
    assert large <= small + 10_000, f"{small} KiB for {few} words, {large} KiB for {many}"
