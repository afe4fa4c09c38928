"""A comparison's report: its answer in words, its tables and pictures, and what may be missing."""

from __future__ import annotations

import copy
import io
import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from comparison_facts import comparison
from elmokit.comparison import pictures
from elmokit.comparison.labels import place_labels, touch
from elmokit.comparison.ranking_rows import ranking_columns, ranking_rows
from elmokit.comparison.report import write_comparison
from elmokit.comparison.standing import ranked
from elmokit.comparison.terminal import ranking_table
from elmokit.comparison.verdict import answer, chosen, listed
from elmokit.core.errors import RunError
from elmokit.tasks.drawing import apart

VOID = {"meta", "link", "br", "img", "hr", "input"}
MINIMAL: dict[str, Any] = {
    "title": "Two methods",
    "data": {},
    "methods": [
        {"id": "a", "name": "A", "splits": {"test": {"accuracy": {"mean": 0.9}}}},
        {"id": "b", "name": "B", "splits": {"test": {"accuracy": {"mean": 0.8}}}},
    ],
}
PARTS = ["ranking", "accuracies", "differences", "cost", "curve", "classes", "confusions", "examples"]
PARTS += ["training", "mix", "pretraining", "intrinsic", "data", "details"]


class Outline(HTMLParser):
    """Checks that all tags are closed in order, and keeps what the page is made of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open
        assert len(self.ids) == len(set(self.ids)), "every id is used once"
        assert {link.removeprefix("#") for link in self.links} <= set(self.ids)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            assert "http:" not in (value or "") or name == "xmlns"
            self.ids += [value or ""] if name == "id" else []
            self.links += [value or ""] if name in ("href", "src") else []
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
    paths = write_comparison(folder, facts)
    assert [path.name for path in paths] == ["report.json", "report.md", "report.html"]
    record, text, page = (path.read_text(encoding="utf-8") for path in paths)

    def refuse(token: str) -> None:
        raise AssertionError(token)

    return json.loads(record, parse_constant=refuse), text, page


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    return written(tmp_path_factory.mktemp("whole") / "deep", comparison())


# -- the page ---------------------------------------------------------------------------------


def test_the_page_has_all_its_parts_and_lists_them(whole: tuple[dict[str, Any], str, str]) -> None:
    _, _, page = whole
    outline = Outline(page)
    assert [name for name in outline.ids if name in PARTS] == PARTS
    assert [link for link in outline.links if link.removeprefix("#") in PARTS] == [
        f"#{name}" for name in PARTS
    ]
    n_pictures = (
        3 * 2 + 11 * 3 + 8 + 2 + 1
    )  # main ones twice, confusions, losses, mixes that move, perplexity
    assert outline.tags.count("svg") == n_pictures
    assert not {"script", "link", "img", "iframe", "object"} & set(outline.tags)


def test_every_picture_has_a_title_and_says_what_it_shows(whole: tuple[dict[str, Any], str, str]) -> None:
    record, _, page = whole
    labels = re.findall(r'<svg[^>]*role="img" aria-label="([^"]+)"[^>]*><title>[^<]+</title><desc>', page)
    assert len(labels) == Outline(page).tags.count("svg")
    mean = record["methods"][0]["splits"]["test"]["accuracy"]["mean"]
    assert any(f"ELMo, fine-tuned: {mean:.1%}, interval" in label for label in labels)
    assert any("fastText: " in label and " in 3.2 s." in label for label in labels)
    assert any("TF-IDF bigrams + SVM: 56.1% with 100, 73.6% with 300" in label for label in labels)


def test_failed_methods_say_why_and_stand_last(whole: tuple[dict[str, Any], str, str]) -> None:
    _, text, page = whole
    assert "Failed: glove.txt, line 17: 99 numbers, not 100." in page
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|.*\|$", text.split("## Ranking")[1].split("##")[0], re.M)[2:]
    assert [row[0] for row in rows[-2:]] == ["GloVe", "CoVe"]
    assert [row[1] for row in rows] == [
        "1",
        "2–3",
        "2–3",
        "4",
        "5",
        "6–7",
        "6–7",
        "8",
        "9",
        "10",
        "11",
        "–",
        "–",
    ]


def test_the_markdown_ranking_has_all_figures(whole: tuple[dict[str, Any], str, str]) -> None:
    record, text, _ = whole
    split = record["methods"][1]["splits"]
    row = next(line for line in text.splitlines() if line.startswith("| ELMo, trainable mix | 2–3 |"))
    accuracy = split["test"]["accuracy"]
    interval = f"({accuracy['low'] * 100:.1f} to {accuracy['high'] * 100:.1f})"
    macro = [f"{split['test']['macro'][name] * 100:.2f}" for name in ("precision", "recall", "f1")]
    assert [cell.strip() for cell in row.strip("| ").split("|")] == [
        "ELMo, trainable mix",
        "2–3",
        f"{accuracy['mean'] * 100:.2f} ± {accuracy['sd'] * 100:.2f} {interval}",
        *(f"{split[name]['accuracy']['mean'] * 100:.2f}" for name in ("valid", "train")),
        *macro,
        "25 min",
        "4.0 min",
        "228",
        "1.5 GB",
        "69.8 MB",
        "91.0 / 88.7",
    ]
    assert "120,000 train rows" in text


def test_markdown_tables_have_as_many_cells_in_every_row(whole: tuple[dict[str, Any], str, str]) -> None:
    tables = re.findall(r"(?:^\|.*\|$\n?)+", whole[1], re.M)
    assert len(tables) > 15
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


def test_the_record_is_the_facts(whole: tuple[dict[str, Any], str, str]) -> None:
    record, facts = whole[0], comparison()
    assert record["ranking"] == facts["ranking"]
    assert [method["id"] for method in record["methods"]] == [method["id"] for method in facts["methods"]]
    assert list(record) == list(facts)


def test_the_same_facts_give_the_same_page(tmp_path: Path) -> None:
    facts = comparison(n_methods=2, failed=False)
    assert written(tmp_path / "one", facts) == written(tmp_path / "two", copy.deepcopy(facts))


def test_hostile_names_and_texts_stay_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    classes = ["<script>alert('class')</script>", "a|b\nc", "$x_1$", "L" * 200, "أخبار", "\x00\ud800\uffff"]
    facts = comparison(classes, n_methods=4, n_test=600)
    facts["title"] = "<img src=x onerror=alert(1)>"
    facts["methods"][0] |= {"name": "</svg><script>alert(2)</script>", "family": '"><b>'}
    facts["methods"][1]["settings"] = {"<b>": "</td></table>"}
    facts["methods"][4]["reason"] = "</td><script>\x07"
    facts["examples"][0]["text"] = "\u202eturned</td> <u>under</u> " + "unbroken" * 50
    facts["commands"] = ["`````\n</pre><script>alert(3)</script>"]
    facts["notes"] = ["<i>note</i>"]
    _, text, page = written(tmp_path, facts)
    outline = Outline(page)
    assert not {"script", "img", "u"} & set(outline.tags)
    words = "".join(outline.words)
    assert "<script>alert('class')</script>" in words
    assert "</svg><script>alert(2)</script>" in words
    assert not set("\x00\x07\u202e") & set(page + text)
    assert "<script" not in text.split("``````")[0]
    assert "``````\n`````" in text, "the fence is longer than what it holds"
    assert capfd.readouterr() == ("", "")


# -- what may be missing ----------------------------------------------------------------------


@pytest.mark.parametrize("key", [key for key in comparison(n_methods=3) if key not in ("title", "methods")])
@pytest.mark.parametrize("given", [False, True])
def test_the_page_adapts_to_what_is_missing(tmp_path: Path, key: str, given: bool) -> None:
    facts = comparison(n_methods=2, n_test=400)
    for method, part in itertools.product(facts["methods"], ("history", "mix", "seconds")):
        method.pop(part, None)
    value = facts.pop(key)
    if given:
        facts[key] = type(value)() if key != "pretraining" else None
    _, text, page = written(tmp_path, facts)
    outline = Outline(page)
    gone = {
        "ranking": "differences",
        "notes": "",
        "left_out": "",
        "versions": "",
        "machine": "",
        "commands": "",
    }
    part = gone.get(key, key)
    assert part not in outline.ids if part else "details" in outline.ids
    assert text.startswith("# ")


def test_two_methods_and_little_else(tmp_path: Path) -> None:
    _, text, page = written(tmp_path, MINIMAL)
    assert [name for name in Outline(page).ids if name in PARTS] == ["ranking", "accuracies"]
    assert "Take A: it gets 90.0% of the test texts right." in page
    assert "whether that is chance was not tested" in text
    assert "| A | 1 | 90.00 |" in text


def test_one_method_alone(tmp_path: Path) -> None:
    _, _, page = written(tmp_path, comparison(n_methods=1, failed=False))
    outline = Outline(page)
    assert not {"accuracies", "cost"} & set(outline.ids)
    assert "nothing to set beside it" in page


def test_no_method_finished(tmp_path: Path) -> None:
    facts = comparison()
    facts["methods"] = [method for method in facts["methods"] if method["status"] != "done"]
    _, text, page = written(tmp_path, facts)
    assert "No method finished, so there is nothing to rank." in page
    assert "Failed: glove.txt" in text
    assert "svg" in Outline(page).tags, "pretraining and the learning curve are still worth seeing"


def _broken(value: Any, bad: Any) -> Any:
    """The same facts with ``bad`` instead of every number."""
    if isinstance(value, dict):
        return {key: _broken(entry, bad) for key, entry in value.items()}
    if isinstance(value, list):
        return [_broken(entry, bad) for entry in value]
    return bad if isinstance(value, (int, float)) and not isinstance(value, bool) else value


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
def test_facts_without_a_single_number(tmp_path: Path, bad: float | None) -> None:
    facts = comparison(n_methods=3, n_test=400)
    _, _, page = written(tmp_path, _broken(facts, bad))
    Outline(page)
    assert "No method finished" in page


@pytest.mark.parametrize(
    "key", ["splits", "seconds", "history", "mix", "seeds", "settings", "published", "bytes"]
)
def test_methods_that_lack_something(tmp_path: Path, key: str) -> None:
    facts = comparison(n_methods=3, n_test=400) | {"curve": None, "pretraining": None}
    facts["methods"][0].pop(key)
    facts["methods"][1][key] = None
    _, _, page = written(tmp_path, facts)
    Outline(page)
    assert "Take " in page


def test_twelve_methods_and_thirty_classes(tmp_path: Path) -> None:
    classes = [f"topic number {number}" for number in range(30)]
    _, text, page = written(tmp_path, comparison(classes, n_methods=12))
    outline = Outline(page)
    assert sum(name.startswith("confusion-test-") for name in outline.ids) == 12
    assert sum(name.startswith("confusion-train-") for name in outline.ids) == 12
    assert "Test: the other methods" in page
    assert "| Class | ELMo, fine-tuned |" in text, "with many classes, they are the rows"
    assert "There are too many classes for tables" in text
    assert len(page) < 4_000_000


@pytest.mark.parametrize(("n_classes", "words"), [(40, "only test is drawn"), (70, "too many for a picture")])
def test_very_many_classes(tmp_path: Path, n_classes: int, words: str) -> None:
    facts = comparison([str(number) for number in range(n_classes)], n_methods=2)
    _, _, page = written(tmp_path, facts)
    drawn = {name.split("-")[1] for name in Outline(page).ids if re.fullmatch(r"confusion-\w+-\d", name)}
    assert drawn == ({"test"} if n_classes == 40 else set())
    assert words in page


def test_without_a_test_split_the_validation_ranks(tmp_path: Path) -> None:
    facts = comparison(n_methods=3, failed=False)
    for method in facts["methods"]:
        del method["splits"]["test"]
    _, _, page = written(tmp_path, facts)
    assert "of the 3,800 valid texts right" in page
    assert "F1 on valid, in percent" in page


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(RunError, match="Cannot write"):
        write_comparison(tmp_path / "file" / "report", MINIMAL)


# -- the answer -------------------------------------------------------------------------------


def test_the_answer_says_what_to_take_why_and_at_what_cost() -> None:
    facts = comparison()
    said = answer(facts)
    mean = facts["methods"][0]["splits"]["test"]["accuracy"]["mean"]
    assert said[0] == f"Take ELMo, fine-tuned: it gets {mean:.1%} of the 7,600 test texts right."
    assert re.match(r"Its lead of 0\.\d points over ELMo, trainable mix is real \(95% interval ", said[1])
    assert said[2] == "Fitting it takes 32 min, after 25 min of pretraining."
    assert re.match(r"If seconds matter, TF-IDF bigrams \+ SVM gives 92\.\d% in 13 s\.", said[3])
    assert said[4].startswith(
        "With only 100 labels ELMo, fine-tuned leads with 86.1%, before ELMo, trainable mix"
    )
    assert said[5:] == ["GloVe failed; the table says why."]


def test_a_lead_that_may_be_chance_is_called_so() -> None:
    facts = comparison(n_methods=3, failed=False)
    facts["ranking"]["ranks"] = dict.fromkeys(facts["ranking"]["order"], "1–3")
    for method in facts["methods"]:
        method["seconds"] = {"pretrain": None, "fit": 100.0}
    said = answer(facts)
    assert said[0].startswith("Take ELMo, fine-tuned")
    assert said[1] == "Its lead may be chance: ELMo, trainable mix and ELMo, learnt function may be as good."
    assert said[2] == "Fitting it takes 1.7 min; none is quicker."


def test_of_equals_the_far_quicker_is_taken() -> None:
    facts = comparison(n_methods=5, failed=False)
    facts["ranking"]["ranks"] = dict.fromkeys(facts["ranking"]["order"], "1–5")
    take = chosen(facts)
    assert take is not None
    assert take["id"] == "tfidf-svm"
    assert "cannot be told from the best, ELMo, fine-tuned with" in answer(facts)[0]
    assert [row.name for row in ranking_rows(facts) if row.chosen] == ["TF-IDF bigrams + SVM"]
    del facts["ranking"]["ranks"]
    take = chosen(facts)
    assert take is not None
    assert take["id"] == "elmo-finetuned", "the pairs say that its lead is real"


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [
        ([15.0, 6.0, 5.0], 0),  # nobody needs the nine seconds
        ([7000.0, 15.0, 6.0], 1),  # nor here: the second has saved the time, and is more accurate
        ([7000.0, 4000.0, 6.0], 2),
        ([100.0, 45.0, 39.0], 2),
        ([7000.0, None, 300.0], 2),
        ([None, 10.0, 10.0], 0),
    ],
)
def test_seconds_are_not_worth_a_worse_method(seconds: list[float | None], taken: int) -> None:
    facts = comparison(n_methods=3, failed=False)
    facts["ranking"]["ranks"] = dict.fromkeys(facts["ranking"]["order"], "1–3")
    for method, fit in zip(ranked(facts), seconds, strict=True):
        method["seconds"] = {"pretrain": None, "fit": fit}
    assert chosen(facts) is ranked(facts)[taken]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ""),
        (["A"], "A"),
        (["A", "B"], "A and B"),
        (["A", "B, b", "C"], "A; B, b and C"),
        (list("ABCDEF"), "A, B, C and 3 more"),
    ],
)
def test_names_in_a_sentence(names: list[str], words: str) -> None:
    assert listed(names) == words


# -- the terminal -----------------------------------------------------------------------------


def _printed(facts: dict[str, Any], width: int) -> str:
    out = io.StringIO()
    Console(width=width, file=out).print(ranking_table(facts))
    return out.getvalue()


def test_the_terminal_table_fits_a_hundred_columns() -> None:
    facts = comparison(n_methods=12)
    facts["methods"][0]["name"] = "A very long name [bold]with[/] marks that nobody can read in full"
    text = _printed(facts, 200)
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= 100
    assert lines[0].split() == [
        "method",
        "test",
        "published",
        "valid",
        "macro",
        "F1",
        "pretrain",
        "fit",
        "texts/s",
        "disk",
    ]
    assert len(lines) == 1 + 12 + 2
    assert "A very long name " in text
    assert "[/]" not in text
    assert re.search(r"5 +TF-IDF bigrams \+ SVM +92\.\d\d ± 0\.00 .* 13 s +21,400 +96\.1 MB", text)
    assert "GloVe: failed: glove.txt, line 17" in text
    assert "…" not in _printed(comparison(n_methods=2), 100), "nothing is cut at a hundred columns"


def test_columns_that_nobody_fills_are_left_out() -> None:
    assert [column.name for column in ranking_columns(MINIMAL)] == ["Test"]
    assert "Published" not in [column.name for column in ranking_columns(comparison(n_methods=1))]
    assert _printed(MINIMAL, 100).split() == ["method", "test", "1", "A", "90.00", "2", "B", "80.00"]


# -- pictures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_labels_touch_neither_each_other_nor_a_dot(n: int) -> None:
    names = [f"ELMo, mix number {row}" for row in range(n)]
    spots = [(300 + 9.0 * (row % 3), 200 + 11.0 * (row // 3)) for row in range(n)]
    frame = (56.0, 44.0, 704.0, 384.0)
    boxes = place_labels(names, spots, frame)
    assert not any(touch(one, other) for one, other in itertools.combinations(boxes, 2))
    dots = [(x - 5, y - 5, x + 5, y + 5) for x, y in spots]
    assert not any(touch(box, dot) for box in boxes for dot in dots)
    for left, bottom, right, top in boxes:
        assert frame[0] <= left < right <= frame[2]
        assert frame[1] <= bottom < top <= frame[3]


def test_labels_keep_off_lines_if_they_can() -> None:
    line = [(200.0, 98.0, 400.0, 102.0)]
    (box,) = place_labels(["name"], [(200.0, 100.0)], (0.0, 0.0, 400.0, 200.0), line)
    assert not touch(box, line[0])


def test_things_are_moved_apart_as_little_as_may_be() -> None:
    assert apart([], 5) == []
    assert apart([0, 100], 10) == [0, 100]
    assert apart([50, 50], 10) == [45, 55]
    assert apart([52, 50, 0], 10) == [56, 46, 0]
    assert apart([99, 100], 10, 0, 100) == [90, 100]
    assert apart([1, 0], 10, 0, 100) == [10, 0]


def test_the_unbeaten_line_and_times_are_drawn() -> None:
    marks = [
        pictures.Mark("quick", "linear", 0.9, seconds=10, fit=10),
        pictures.Mark("slow and worse", "static", 0.88, seconds=100, fit=90),
        pictures.Mark("slow and better", "elmo", 0.93, seconds=7000, fit=600),
        pictures.Mark("no cost known", "elmo", 0.5),
    ]
    svg = pictures.cost(marks, name="one", words="Words. More.")
    for text in ("10 s", "1 min", "10 min", "1 h", "quick", "slow and better"):
        assert f">{text}<" in svg
    assert "no cost known" not in svg
    assert "<title>Words</title><desc>More.</desc>" in svg


def test_a_learning_curve_of_one_count_is_drawn() -> None:
    svg = pictures.learning_curves(
        [pictures.Curve("one", "elmo", [(100.0, 0.5, None)])], name="one", words="Words.", wide=False
    )
    assert ">100<" in svg
