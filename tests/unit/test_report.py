from __future__ import annotations

import json
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from elmokit.core.errors import RunError
from elmokit.tasks import pictures
from elmokit.tasks.metrics import confident_mistakes, measure, measure_multilabel
from elmokit.tasks.report import plain_facts, write_report
from elmokit.tasks.report_markdown import Table

CLASSES = ["World", "Sports", "Business", "Sci/Tech"]
HOSTILE = [
    "<script>alert('class')</script>",
    "a|b\nc",
    "$x_1$ and $",
    "long " * 40,
    "新聞",
    "أخبار",
    '😀 & "quotes"',
    "\x00\ud800\uffff",
]
VOID = {"meta", "link", "br", "img", "hr", "input"}


def split(classes: list[str], n: int, seed: int = 0) -> dict[str, Any]:
    numbers = np.random.default_rng(seed)
    right = numbers.integers(0, len(classes), size=n)
    scores = numbers.normal(size=(n, len(classes)))
    scores[np.arange(n), right] += 2
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    predicted = [classes[column] for column in chances.argmax(axis=1)]
    true = [classes[column] for column in right]
    facts = measure(true, predicted, chances, classes)
    texts = [f"<b>Text</b> {number} | with $math$ & a very{'long' * 30}word" for number in range(n)]
    facts["mistakes"] = confident_mistakes(texts, true, predicted, chances, classes)
    return facts


def whole(classes: list[str]) -> dict[str, Any]:
    splits = {name: split(classes, n, n) for name, n in (("test", 90), ("train", 300), ("valid", 60))}
    mistakes = {name: facts.pop("mistakes") for name, facts in splits.items()}
    return {
        "title": "News topics",
        "classes": classes,
        "multilabel": False,
        "splits": splits,
        "history": [
            {"epoch": epoch, "step": 10 * epoch, "train_loss": 1 / epoch, "valid_loss": 1.2 / epoch}
            | {"accuracy": 1 - 0.3 / epoch, "lr": 1e-3}
            for epoch in (1, 2, 3)
        ],
        "mix": {
            "kind": "trainable",
            "form": "softmax",
            "names": ["layer 0 (token encoder)", "layer 1", "layer 2"],
            "values": [0.5, 0.3, 0.2],
            "history": [[1 / 3] * 3, [0.4, 0.32, 0.28], [0.45, 0.31, 0.24], [0.5, 0.3, 0.2]],
        },
        "mistakes": {"test": mistakes["test"]},
        "encoder": {"folder": Path("model"), "dim": np.int64(512)},
        "settings": {"epochs": 3, "head": {"width": 64}, "mix": None, "clip": float("inf")},
        "timings": {"encoding": 75.2, "documents_per_second": 123.4},
        "versions": {"elmokit": "1.0"},
        "command": "elmokit classify <news> && echo ```",
        "notes": ["Read me first."],
    }


class Outline(HTMLParser):
    """Checks that all tags are closed in order, and keeps what the page is made of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def written(folder: Path, facts: dict[str, Any]) -> tuple[dict[str, Any], str, str]:
    paths = write_report(folder, facts)
    assert [path.name for path in paths] == ["report.json", "report.md", "report.html"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in paths)
    record, text, page = (path.read_text(encoding="utf-8") for path in paths)

    def refuse(token: str) -> None:
        raise AssertionError(token)

    return json.loads(record, parse_constant=refuse), text, page


# -- the page ---------------------------------------------------------------------------------


def test_the_page_has_all_its_parts(tmp_path: Path) -> None:
    record, text, page = written(tmp_path / "deep" / "run", whole(CLASSES))
    outline = Outline(page)
    parts = ["scores", "training", "mix", "confusions", "classes", "calibration", "mistakes", "details"]
    assert [name for name in outline.ids if name in parts] == parts
    assert len(outline.ids) == len(set(outline.ids)), "every id is used once"
    assert outline.tags.count("svg") == 2 + 1 + 3 + 3
    assert list(record["splits"]) == ["train", "valid", "test"]
    accuracy = record["splits"]["test"]["accuracy"]
    assert f'<dd class="value">{accuracy * 100:.2f}%</dd>' in page
    assert "Measured on the test split: 90 texts, 4 classes." in page
    assert "95% interval" in page
    assert "Read me first." in page
    assert "head.width" in page
    assert "1 min 15 s" in page
    assert f"{accuracy * 100:.2f}" in text
    assert record["encoder"] == {"folder": "model", "dim": 512}
    assert record["settings"]["clip"] is None


def test_the_page_asks_for_nothing_from_outside(tmp_path: Path) -> None:
    _, _, page = written(tmp_path, whole(CLASSES))
    outline = Outline(page)
    assert not {"script", "link", "img", "iframe", "image", "object"} & set(outline.tags)
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    for name, value in outline.attributes:
        assert not name.startswith("on")
        if name in ("href", "src"):
            assert value.startswith("#")
        if name != "xmlns":
            assert "http:" not in value
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_pictures_point_only_at_their_own_parts(tmp_path: Path) -> None:
    _, _, page = written(tmp_path, whole(CLASSES))
    ids = set(Outline(page).ids)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= ids
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= ids


def test_pictures_say_in_words_what_they_show(tmp_path: Path) -> None:
    record, _, page = written(tmp_path, whole(CLASSES))
    labels = re.findall(r'<svg[^>]*aria-label="([^"]+)"', page)
    assert len(labels) == 9
    assert labels[0].startswith("Loss by epoch. train: 1.0000 at epoch 1, 0.5000 at epoch 2, ")
    assert "layer 0: 0.3333 at epoch 0, 0.4000 at epoch 1" in labels[2]
    row = record["splits"]["test"]["confusion"][0]
    assert f"World: {row[0]} of {sum(row)} right" in labels[5]
    assert f"expected error {record['splits']['test']['calibration']['ece']:.2%}" in labels[8]


def test_the_same_facts_give_the_same_page(tmp_path: Path) -> None:
    pages = [written(tmp_path / name, whole(CLASSES)) for name in ("one", "two")]
    assert pages[0] == pages[1]


def test_hostile_names_and_texts_stay_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    facts = whole(HOSTILE) | {
        "title": "<img src=x onerror=alert(1)>",
        "command": "`````\n</pre><script>alert(2)</script>",
        "notes": ["<i>note</i>"],
        "settings": {"<b>": "</td></table>", "list": ["<u>"]},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, text, page = written(tmp_path, facts)
    outline = Outline(page)
    assert not {"script", "img", "b>", "i", "u"} & set(outline.tags)
    assert outline.tags.count("b") == len(facts["mistakes"]["test"])
    assert "<script>alert('class')</script>" in "".join(outline.words)
    assert "<img src=x onerror=alert(1)>" in "".join(outline.words)
    assert "\x00" not in page + text
    assert "<script" not in text.split("``````")[0]
    assert "a\\|b c" in text
    assert "\\$x\\_1\\$ and \\$" in text
    assert "``````\n`````" in text, "the fence is longer than what it holds"
    out = capfd.readouterr()
    assert (out.out, out.err) == ("", "")


def test_markdown_tables_have_as_many_cells_in_every_row(tmp_path: Path) -> None:
    _, text, _ = written(tmp_path, whole(HOSTILE))
    tables = re.findall(r"(?:^\|.*\|$\n?)+", text, re.M)
    assert len(tables) > 8
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


# -- what may be missing ----------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, *whole(CLASSES)])
@pytest.mark.parametrize("empty", [False, True])
def test_the_page_adapts_to_what_is_missing(tmp_path: Path, key: str | None, empty: bool) -> None:
    facts = whole(CLASSES) if key else {}
    if key:
        facts["splits"] = {"test": facts["splits"]["test"]}
        value = facts.pop(key)
        if empty:
            facts[key] = type(value)()
    record, text, page = written(tmp_path, facts)
    outline = Outline(page)
    assert "h1" in outline.tags
    assert text.startswith("# ")
    assert ("scores" in outline.ids) == bool(record["splits"])
    assert ("mistakes" in outline.ids) == bool(record.get("mistakes"))
    assert ("mix" in outline.ids) == bool(record.get("mix"))


def test_an_empty_split_is_left_out_with_a_note(tmp_path: Path) -> None:
    facts = whole(CLASSES)
    facts["splits"]["test"] = measure([], [], np.zeros((0, 4)), CLASSES)
    record, text, page = written(tmp_path, facts)
    assert list(record["splits"]) == ["train", "valid"]
    for place in (page, text, str(record["notes"])):
        assert "The test split has no texts and is left out." in place
    assert "Measured on the valid split" in page


def test_unseen_labels_are_noted_and_have_their_row(tmp_path: Path) -> None:
    facts = {"splits": {"test": measure(["Art", "World"], ["World"] * 2, np.full((2, 4), 0.25), CLASSES)}}
    _, text, page = written(tmp_path, facts)
    note = "In test, 1 text has 1 label that training never saw: Art (1). They count as wrong."
    assert note in page
    assert "Art: 1, unseen in training." in page
    assert "| Art | 1 | 0 | 0 | 0 |" in text


def test_a_split_with_one_class_or_one_text(tmp_path: Path) -> None:
    one = measure(["yes"], ["yes"], np.ones((1, 1)), ["yes"])
    _, _, page = written(tmp_path, {"splits": {"train": one}})
    assert "Measured on the train split: 1 text, 1 class." in page
    assert Outline(page).tags.count("svg") == 2


def test_several_classes_a_text(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0)
    true, chances = numbers.random((50, 4)) < 0.4, numbers.random((50, 4))
    facts = {
        "multilabel": True,
        "classes": CLASSES,
        "splits": {"test": measure_multilabel(true, chances, CLASSES)},
        "mistakes": {
            "test": [{"text": "t", "true": ["World", "Sports"], "predicted": [], "probability": None}]
        },
    }
    _, text, page = written(tmp_path, facts)
    outline = Outline(page)
    assert "Micro F1" in page
    assert "Hamming loss" in text
    assert "World, Sports" in page
    assert not {"confusions", "calibration"} & set(outline.ids)


def test_many_classes_fold_the_other_splits_and_too_many_are_only_listed(tmp_path: Path) -> None:
    _, _, page = written(tmp_path / "many", whole([f"class {number}" for number in range(20)]))
    assert len(re.findall(r"<details><summary>(?:train|valid), ", page)) == 2
    assert "Most common confusions" in page
    _, text, page = written(tmp_path / "more", whole([f"class {number}" for number in range(70)]))
    assert "70 classes are too many for a picture." in page
    assert Outline(page).tags.count("svg") == 2 + 1 + 3
    assert "### Most common confusions (test)" in text


@pytest.mark.parametrize(
    ("mix", "words"),
    [
        ({"kind": "frozen", "form": "softmax", "values": [0.5, 0.5]}, "not learnt; they add up to one."),
        ({"kind": "trainable", "form": "raw", "values": [-0.5, 2.0]}, "also below zero."),
        ({"kind": "function", "form": "raw", "values": [0.9, 0.1]}, "A learnt function mixes the layers"),
        ({"kind": "trainable", "values": [float("nan"), 1.0], "history": [[0.5, float("nan")]]}, "learnt"),
    ],
)
def test_each_kind_of_mix_is_explained(tmp_path: Path, mix: dict[str, Any], words: str) -> None:
    _, _, page = written(tmp_path, {"mix": mix})
    assert words in page
    assert "layer 1" in page


def test_gaps_in_the_history_are_left_out_of_the_curves(tmp_path: Path) -> None:
    history = [{"epoch": 1, "train_loss": float("nan")}, {"epoch": 1, "train_loss": 0.5}, {"step": 3}]
    _, text, page = written(tmp_path, {"history": history})
    assert "Loss by measurement. train: 0.5000 at measurement 2." in page
    assert "| 1 | 0.5 | – |" in text


# -- pieces -----------------------------------------------------------------------------------


def test_plain_facts_are_what_json_knows() -> None:
    facts: dict[Any, Any] = {
        "a": np.array([1.0, np.nan]),
        2: (np.float32(0.5), Path("x")),
        "s": "\ud800",
        "t": {"b": True},
    }
    expected = {"a": [1.0, None], "2": [0.5, "x"], "s": "\N{REPLACEMENT CHARACTER}", "t": {"b": True}}
    assert plain_facts(facts) == expected


def test_table_columns_know_their_groups() -> None:
    table = Table(["Split", "Texts", "F1", "F1"], [], (("", 1), ("Macro", 1), ("Weighted", 1)))
    assert table.starts == [2, 3]
    assert table.full_head == ["Split", "Texts", "Macro F1", "Weighted F1"]


def test_names_are_cut_by_the_room_they_take() -> None:
    assert pictures.short("a\n b\tc") == "a b c"
    assert pictures.short("abcdefgh", 5) == "abcd…"
    assert pictures.short("新聞新聞", 5) == "新聞…"


def test_pictures_are_sound_xml_and_change_nothing_outside() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    svg = pictures.confusion([[1, 2], [3, 12345]], ["$a$", "#010101"], ["$a$", "#010101"], name="one")
    assert dict(matplotlib.rcParams) == before
    texts = [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]
    assert texts.count("$a$") == 2
    assert texts.count("#010101") == 2, "a name that looks like a colour stays a name"
    assert "12,345" in texts
    assert not re.search(r'style="[^"]*#0[1-6]0[1-6]', svg)


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(RunError, match="Cannot write"):
        write_report(tmp_path / "file" / "run", {})
