"""``elmokit similar`` as a person runs it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from elmokit.bilm.folder import load_bilm, save_bilm
from elmokit.bilm.model import Bilm
from elmokit.text.settings import TextConfig
from elmokit.text.tokenizing import TextPipeline
from elmokit.vectors.store_writer import embed
from program import Cli


@pytest.fixture(scope="module")
def store(tiny_model: Path, tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("store") / "vectors"
    embed(tiny_model, tiny_corpus, out)
    return out


def test_a_table_for_each_word_with_the_word_in_one_column(
    cli: Cli, tiny_model: Path, tiny_corpus: Path
) -> None:
    done = cli("similar", tiny_model, "A small dog ran home.", "--in", tiny_corpus, "-k", "3").check_fine()
    blocks = done.out.strip().split("\n\n")
    heads = [block.splitlines()[0] for block in blocks]
    assert heads[-1].startswith("home  in  A small dog ran home.")
    for block in blocks:
        rows = block.splitlines()[1:]
        assert len(rows) == 3
        assert all(len(row) <= 90 for row in rows)
        scores = [float(row.split()[0]) for row in rows]
        assert scores == sorted(scores, reverse=True)
    first = blocks[-1].splitlines()[1]
    assert first.split()[:2] == ["1.000", "home"]
    assert "A small dog ran home." in first


def test_json_holds_the_same_for_files_a_folder_and_standard_input(
    cli: Cli, tiny_model: Path, tiny_corpus: Path, store: Path
) -> None:
    words = ("similar", tiny_model, "The mayor of Paris ran home.", "--word", "mayor", "-k", "4", "--json")
    answers = []
    for place, stdin in ((tiny_corpus, ""), (store, ""), ("-", tiny_corpus.read_text(encoding="utf-8"))):
        done = cli(*words, "--in", place, stdin=stdin).check_fine()
        answers.append(json.loads(done.out))
    for answer in answers:
        assert answer["query"] == ["The", "mayor", "of", "Paris", "ran", "home", "."]
        (one,) = answer["words"]
        assert (one["word"], one["position"], len(one["found"])) == ("mayor", 1, 4)
        assert one["found"][0]["words"] == answer["query"]
        assert one["found"][0]["score"] == pytest.approx(1.0, abs=1e-5)
        assert {hit["words"][hit["position"]] for hit in one["found"]} == {
            hit["word"] for hit in one["found"]
        }
    places = [[(hit["index"], hit["position"]) for hit in a["words"][0]["found"]] for a in answers]
    assert places[0] == places[1] == places[2]


def test_other_words_layers_and_odd_scripts(cli: Cli, tiny_model: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.txt"
    odd.write_text(
        "日本の銀行😀 cafe\u0301\nשלום עולם fox\n\u0915\u093f\u0924\u093e\u092c fox 👩‍👩‍👧\n",
        encoding="utf-8",
    )
    for options in (["--different"], ["--layer", "0"], ["--mix-weights", "0,0,1"], ["--state", "warm"]):
        done = cli("similar", tiny_model, "a fox 😀", "--word", "fox", "--in", odd, *options).check_fine()
        rows = done.out.strip().splitlines()[1:]
        assert ("fox" in {row.split()[1] for row in rows}) is ("--different" not in options)
    only = tmp_path / "only.txt"
    only.write_text("fox Fox FOX\n", encoding="utf-8")
    cli("similar", tiny_model, "a fox", "--word", "fox", "--in", only, "--different").check_fine(
        "no other word in the corpus"
    )


def test_words_that_look_like_markup_are_shown_as_they_are(
    cli: Cli, tiny_model: Path, tmp_path: Path
) -> None:
    odd = tmp_path / "odd.txt"
    odd.write_text("see [/red] and [bold]fox[/] here\n", encoding="utf-8")
    text = TextConfig(tokens="whitespace")
    saved = load_bilm(tiny_model)
    torch.manual_seed(0)
    config = replace(saved.model.config, input="word")
    word_model = Bilm(config, len(saved.vocabulary), 0)
    tokenizer = TextPipeline(text).word_tokenizer(saved.vocabulary.words)
    model = tmp_path / "words"
    save_bilm(model, replace(saved, model=word_model, text=text, tokenizer=tokenizer, start_state=None))
    done = cli("similar", model, "see http://x.y/[/red]z and [bold]fox[/]", "--in", odd).check_fine(
        "read as <unk>: http://x.y/[/red]z, [bold]fox[/]", "[/red] and [bold]fox[/] here"
    )
    assert "[/red]" in {row.split()[1] for row in done.out.splitlines() if len(row.split()) > 1}


def test_bad_input_is_refused_with_a_remedy(
    cli: Cli, tiny_model: Path, tiny_corpus: Path, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    for words, part in (
        ((tiny_model, "the fox", "--in", tmp_path / "nowhere.txt"), "nowhere.txt"),
        ((tiny_model, "the fox", "--in", tmp_path / "empty.txt"), "no word"),
        ((tmp_path, "the fox", "--in", tiny_corpus), "config.json"),
        ((tiny_model, "the fox", "--in", tiny_corpus, "--word", "dog"), "no word 'dog'"),
        ((tiny_model, " ", "--in", tiny_corpus), "no word"),
        ((tiny_model, "the fox", "--in", tiny_corpus, "--layer", "9"), "no layer 9"),
        ((tiny_model, "the fox", "--in", tiny_corpus, "--mix-weights", "1"), "1 weights"),
        ((tiny_model, "the fox", "--in", tiny_corpus, "--state", "cold"), "cold"),
        ((tiny_model, "the fox", "--in", tiny_corpus, "--set", "pool=mean"), "no setting 'pool'"),
        ((tiny_model, "the fox", "--in", store, "--layer", "1"), "not the layer 1"),
        ((tiny_model, "the fox", "--in", store, "--in", tiny_corpus), "cannot be mixed"),
    ):
        cli("similar", *words).check_refused(part)
