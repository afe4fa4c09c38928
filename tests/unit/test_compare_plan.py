"""What a comparison is asked to do: rows, methods, recipes, parts, and a plan cut down to a time."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.comparison.budget import planned_seconds, within_budget
from elmokit.comparison.costs import Sizes, estimate, operations_per_second
from elmokit.comparison.data import Rows, draw, load_rows, read_rows, save_rows
from elmokit.comparison.doing import pretraining_config
from elmokit.comparison.methods import CATALOGUE, Plan, choose, source_id
from elmokit.comparison.recipes import RECIPES, make_plan, read_plan_toml
from elmokit.comparison.steps import changes_of, made_from, units_of
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError
from elmokit.text.settings import LabelConfig, ReadConfig
from topics import rows, table

SIZES = Sizes(n_train=3_600_000, n_more=0, n_other=500_000, n_texts=80_000)


def read(train: Path, test: Path, **more: list[Path]) -> Rows:
    files = {name: list(map(str, found)) for name, found in more.items()}
    return read_rows(
        [train],
        [test],
        files.get("valid", []),
        files.get("unlabelled", []),
        read=ReadConfig(),
        labels=LabelConfig(),
        reporter=Reporter("silent"),
    )


# -- rows -------------------------------------------------------------------------------------


def test_a_tenth_of_each_class_is_set_aside_and_said(tmp_path: Path) -> None:
    found = read(table(tmp_path / "train.csv", rows(60)), table(tmp_path / "test.csv", rows(30, 1)))
    assert {name: len(found.texts(name)) for name in found.parts} == {"train": 54, "valid": 6, "test": 30}
    assert sorted(found.labels("valid")) == sorted(found.classes * 2)
    assert "6 of the 60 train rows were set aside for validation." in found.notes


def test_rows_survive_their_files(tmp_path: Path) -> None:
    odd = [("a\u2028b", "money"), ('"q" \\ \t', "sport"), ("", "weather"), ("x\nb", "money")] * 4
    train = table(tmp_path / "train.csv", [*odd, *rows(12)])
    more = tmp_path / "more.txt"
    more.write_text("one\ntwo\n", encoding="utf-8")
    found = read(train, table(tmp_path / "test.csv", rows(9, 1)), unlabelled=[more])
    save_rows(tmp_path / "rows", found)
    again = load_rows(tmp_path / "rows")
    assert again.marks() == found.marks()
    assert again.unlabelled == ["one", "two"]
    assert again.classes == found.classes
    assert [again.texts(name) for name in again.parts] == [found.texts(name) for name in found.parts]


def test_rows_in_train_and_test_alike_are_counted(tmp_path: Path) -> None:
    known = [(f"text {n}", "money" if n % 2 else "sport") for n in range(40)]
    test = [*rows(9, 1), ("text  1", "money"), ("text 3", "money")]
    found = read(
        table(tmp_path / "train.csv", known),
        table(tmp_path / "test.csv", test),
        valid=[table(tmp_path / "valid.csv", [("text 5", "money"), ("new", "sport")])],
    )
    notes = " ".join(found.notes)
    assert "2 rows stand in train and test alike, of 11 test rows." in notes
    assert "1 row stands in train and validation alike" in notes
    assert "6 test rows have labels that no train row has" not in notes


def test_labels_of_the_test_alone_are_said(tmp_path: Path) -> None:
    test = table(tmp_path / "test.csv", [*rows(9, 1), ("odd", "cooking"), ("odder", "cooking")])
    found = read(table(tmp_path / "train.csv", rows(60)), test)
    assert any("2 test rows have labels that no train row has (cooking)" in note for note in found.notes)


def test_test_rows_with_none_of_the_labels_are_refused(tmp_path: Path) -> None:
    test = table(tmp_path / "test.csv", [("a text", "cooking"), ("another", "music")])
    with pytest.raises(DataError, match=r"none of its labels \('cooking', 'music'\)"):
        read(table(tmp_path / "train.csv", rows(60)), test)


def test_test_texts_among_the_unlabelled_are_said(tmp_path: Path) -> None:
    test = rows(9, 1)
    more = tmp_path / "more.txt"
    more.write_text(test[0][0] + "\nother\n", encoding="utf-8")
    found = read(
        table(tmp_path / "train.csv", rows(60)), table(tmp_path / "test.csv", test), unlabelled=[more]
    )
    assert any("are test texts" in note for note in found.notes)


@pytest.mark.parametrize("n_labels", [3, 10, 99, 100])
def test_a_draw_is_the_same_again_and_holds_each_class(n_labels: int) -> None:
    values = np.array([0] * 90 + [1] * 8 + [2] * 2)
    first, again, other = draw(values, n_labels, 0), draw(values, n_labels, 0), draw(values, n_labels, 1)
    assert (first == again).all()
    assert len(set(first.tolist())) == n_labels == len(first)
    assert set(values[first]) == {0, 1, 2}
    assert n_labels == 100 or set(first) != set(other)


def test_draws_are_fair_beyond_one_of_each_class() -> None:
    values = np.arange(1000) % 2
    counts = np.zeros(1000)
    for number in range(300):
        counts[draw(values, 100, number)] += 1
    assert abs(counts.mean() - 30) < 1e-9
    assert counts.std() < 8  # that of chance is 5.2


# -- methods and recipes ----------------------------------------------------------------------


def test_methods_are_chosen_by_id_and_family() -> None:
    known = list(CATALOGUE.values())
    assert [method.id for method in choose(known, ["tfidf-svm", "svd"])] == ["svd", "tfidf-svm"]
    assert {method.family for method in choose(known, ["static", "linear"])} == {"static", "linear"}
    with pytest.raises(ConfigError, match="no method 'tfidf-smv'") as error:
        choose(known, ["tfidf-smv"])
    assert "tfidf-svm" in error.value.remedy


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_a_plan_that_survives_json(recipe: str) -> None:
    plan = make_plan(recipe, counts=[100, 300])
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    units = units_of(plan, None)
    assert len({unit.id for unit in units}) == len(units)
    ids = [unit.id for unit in units]
    assert all(ids.index(need) < ids.index(unit.id) for unit in units for need in unit.needs)


def test_the_write_ups_recipe_holds_every_system_with_its_figures() -> None:
    plan = make_plan("write-ups")
    published = {method.id: method.published for method in plan.methods}
    assert published["elmo-trainable"] == (0.91, 0.887)
    assert published["svd-4"] == (0.781, 0.860)
    assert published["cbow"] == (0.875,)
    assert not plan.left_out or "morfessor" in plan.left_out[0]
    inputs = {pretraining_config(m, 10**6).model.input for m in plan.methods if m.family == "elmo"}
    assert inputs == {"word", "char", "subword", "morpheme"}
    assert max(pretraining_config(m, 10**6).model.n_layers for m in plan.methods if m.family == "elmo") == 6
    config = pretraining_config(plan.method("elmo-trainable"), 10**6)
    assert (config.model.dim, config.training.epochs) == (150, 10)


def test_the_mixes_share_one_language_model_and_static_heads_their_vectors() -> None:
    plan = make_plan("quick")
    elmos = {source_id(method) for method in plan.methods if method.family == "elmo"}
    assert len(elmos) == 1
    assert len({source_id(plan.method(id)) for id in ("sgns", "sgns-linear", "sgns-function")}) == 1
    assert source_id(plan.method("sgns")) != source_id(plan.method("cbow"))
    assert sum(unit.kind == "language-model" for unit in units_of(plan, None)) == 1
    assert not any(unit.kind == "language-model" for unit in units_of(plan, Path("given")))


def test_methods_without_chance_have_one_seed() -> None:
    units = units_of(make_plan("quick", n_seeds=3), None)
    seeds = {
        id: sum(unit.id.startswith(f"{id}-s") and unit.kind in ("fit", "linear") for unit in units)
        for id in ("elmo-trainable", "elmo-linear", "sgns", "tfidf-svm")
    }
    assert seeds == {"elmo-trainable": 3, "elmo-linear": 1, "sgns": 3, "tfidf-svm": 1}


def test_a_method_whose_package_is_missing_is_left_out_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    plan = make_plan("quick")
    assert "fasttext" not in [method.id for method in plan.methods]
    assert any("the package fasttext is not there" in sentence for sentence in plan.left_out)
    assert [method.id for method in make_plan("quick", methods=["fasttext"]).methods] == ["fasttext"]
    assert "elmo-morpheme" not in [method.id for method in make_plan("write-ups").methods]


def test_language_models_read_small_texts_more_often() -> None:
    method = make_plan("quick").method("elmo-trainable")
    epochs = [pretraining_config(method, n).training.epochs for n in (10**4, 10**6, 10**8)]
    assert epochs == sorted(epochs, reverse=True)
    assert epochs[0] > epochs[1] > epochs[2]


def test_a_toml_file_changes_settings_and_adds_variants(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(
        'seeds = 2\nmethods = ["svd-3", "elmo-trainable"]\n'
        '[classifier]\nhead = "bilstm"\n'
        "[language_model.training]\nepochs = 7\n"
        '[method.svd-3]\nlike = "svd"\n[method.svd-3.vectors]\nwindow = 3\n',
        encoding="utf-8",
    )
    plan = make_plan("quick", changes=read_plan_toml(file))
    assert [method.id for method in plan.methods] == ["elmo-trainable", "svd-3"]
    assert plan.seeds == (0, 1)
    assert plan.method("svd-3").vectors == {"dim": 300, "window": 3}
    assert plan.method("svd-3").text["lowercase"]
    assert plan.method("svd-3").base == "svd"
    assert all(method.classifier["head"] == "bilstm" for method in plan.methods)
    assert pretraining_config(plan.method("elmo-trainable"), 10**6).training.epochs == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[classifer]\nhead = 'pool'", "classifer"),
        ("classifier = 3", "must be a section"),
        ("seeds = 0", "at least 1"),
        ("methods = 'svd'", "list of names"),
        ("[method.x]\nlikes = 'svd'", "'likes'"),
        ("[method.x]\nlike = 'svdd'", "'svdd'"),
        ("[method.svd.vectors]\nwindo = 3", "windo"),
        ("[method.elmo-trainable.classifier]\nmix = 'mixed'", "elmo-trainable"),
        ("[language_model.training]\nepoch = 3", "epoch"),
        ("[language_model]\nmodel = 3", "must be a section"),
        ("[method.svd]\nvectors = 3", "must be a section"),
        ("[method.x]\nlike = 3", "must be text"),
        ('[method."../x"]\nlike = "svd"', "no name for a method"),
        ("[method.tfidf-lr.classifier]\nhead = 'pool'", "classifier means nothing"),
        ("[method.elmo-frozen.vectors]\ndim = 3", "vectors means nothing"),
        ("[classifier]\nseed = 3", "seed is not set"),
        ("[method.elmo-linear.classifier]\nfinetune = true", "solved, not trained"),
        ("not toml", "not valid TOML"),
    ],
)
def test_a_toml_file_that_means_nothing_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        make_plan("quick", changes=read_plan_toml(file))
    assert said in str(error.value)


def test_a_common_head_leaves_methods_alone_whose_name_says_another() -> None:
    plan = make_plan("quick", changes={"classifier": {"head": "bilstm", "max_words": 50}})
    heads = {method.id: method.classifier.get("head") for method in plan.methods}
    assert heads["elmo-frozen"] == heads["svd"] == "bilstm"
    assert heads["elmo-linear"] == heads["sgns-linear"] == "linear"
    assert plan.method("elmo-linear").classifier["max_words"] == 50


def test_static_vectors_clean_text_as_the_language_model_does() -> None:
    plan = make_plan("write-ups")
    text = pretraining_config(plan.method("elmo-trainable"), 10**6).text
    assert plan.method("sgns").text == text.to_dict()


def test_what_a_part_is_made_from_holds_its_settings_and_not_its_name() -> None:
    plan, marks = make_plan("quick"), {"train": "x"}
    units = {unit.id: unit for unit in units_of(plan, None)}

    def made(id: str, **changes: dict[str, Any]) -> dict[str, Any]:
        method = plan.method(units[id].method).changed(**changes)
        return made_from(units[id], method, marks, "")

    fit, svd = made("svd-s0"), made("svd-s0", vectors={"window": 2})
    assert changes_of(fit, svd) == ["vectors"]
    assert changes_of(fit, made("svd-s0", classifier={"lr": 1.0})) == ["classifier"]
    assert changes_of(fit, made("svd-s1")) == ["seed"]
    source = source_id(plan.method("elmo-frozen"))
    other = plan.method("elmo-trainable").changed(name="another", classifier={"lr": 1.0})
    assert made_from(units[source], other, marks, "") == made(source)


# -- time -------------------------------------------------------------------------------------


def test_larger_parts_are_estimated_to_cost_more() -> None:
    plan = make_plan("thorough", counts=[100])
    speed = operations_per_second(0.01)
    assert speed > 0
    units = {unit.id: unit for unit in units_of(plan, None)}
    costs = {id: estimate(unit, plan.method(unit.method), SIZES, speed) for id, unit in units.items()}
    assert costs["elmo-finetuned-s0"] > costs["elmo-trainable-s0"] > costs["tfidf-svm-s0"]
    assert costs["elmo-linear-n100-d0"] < costs["elmo-linear-s0"] + 60


def test_a_plan_is_cut_down_until_it_fits_and_says_so() -> None:
    plan, speed = make_plan("quick"), 5e10
    whole = planned_seconds(plan, SIZES, speed, 2, None)
    assert within_budget(plan, SIZES, speed, 10 * whole, 2, None) == plan
    seconds = [whole, whole / 2, whole / 4, whole / 20]
    found = [within_budget(plan, SIZES, speed, budget, 2, None) for budget in seconds]
    for smaller, budget in zip(found[:3], seconds, strict=False):
        assert planned_seconds(smaller, SIZES, speed, 2, None) <= budget
        assert smaller.left_out
    sizes = [len(units_of(smaller, None)) for smaller in found]
    assert sizes == sorted(sizes, reverse=True)
    assert any("left out" in sentence for sentence in found[-1].left_out)


def test_a_hopeless_budget_still_gives_a_plan_and_a_warning() -> None:
    plan = within_budget(make_plan("quick"), SIZES, 1e9, 1.0, 2, None)
    assert len(plan.methods) == 1
    assert any("estimated to take longer" in sentence for sentence in plan.left_out)


def test_a_given_encoder_is_never_made_smaller() -> None:
    plan = dataclasses.replace(make_plan("quick", methods=["elmo"]), seeds=(0, 1))
    smaller = within_budget(plan, SIZES, 1e9, 60.0, 2, Path("given"))
    assert all("language model" not in sentence for sentence in smaller.left_out)


def test_plans_only_ever_become_smaller_and_lose_what_costs_most() -> None:
    changes = {
        "language_model": {"model": {"dim": 8, "hidden_dim": 8, "tie": False}, "training": {"epochs": 1}}
    }
    plan = make_plan("quick", changes=changes)
    tight = within_budget(plan, SIZES, 5e10, planned_seconds(plan, SIZES, 5e10, 2, None) / 8, 2, None)
    assert not any("wide" in sentence for sentence in tight.left_out)
    assert {"tfidf-lr", "tfidf-svm"} <= {method.id for method in tight.methods}
    plan = make_plan("quick", methods=["static", "linear"])
    assert not any("language" in s for s in within_budget(plan, SIZES, 5e10, 60.0, 2, None).left_out)


def test_the_linear_head_is_cheap() -> None:
    plan = make_plan("quick")
    units = {unit.id: unit for unit in units_of(plan, None)}
    costs = {id: estimate(unit, plan.method(unit.method), SIZES, 5e10) for id, unit in units.items()}
    assert costs["sgns-linear-s0"] < costs["sgns-s0"]
    assert costs["elmo-linear-s0"] < costs["elmo-trainable-s0"]
