"""What a comparison will do: rows, methods, recipes and steps."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.comparison.data import Data, draw_rows, read_data
from elmokit.comparison.methods import Method, Plan, catalog, choose_methods
from elmokit.comparison.recipes import (
    fitting_config,
    make_plan,
    plan_for_task,
    pretraining_config,
    vectors_config,
)
from elmokit.comparison.steps import plan_steps
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError, MissingExtraError
from elmokit.tasks.task import get_task
from elmokit.text.settings import LabelConfig, ReadConfig
from topics import rows, table
from toy_tasks import TOYS


def read(train: Path, test: Path, **more: Path) -> Data:
    sources: dict[str, Any] = {"train": train, "valid": (), "test": test, "unlabeled": (), **more}
    return read_data(sources, get_task("classify"), ReadConfig(), LabelConfig(), Reporter("silent"))


def method(plan: Plan, id: str) -> Method:
    return next(method for method in plan.methods if method.id == id)


@pytest.fixture
def train(tmp_path: Path) -> Path:
    return table(tmp_path / "train.csv", rows(60))


# -- rows -------------------------------------------------------------------------------------


def test_a_tenth_of_each_class_is_held_out_and_fingerprints_change_with_any_row(
    train: Path, tmp_path: Path
) -> None:
    data = read(train, table(tmp_path / "test.csv", rows(30, 1)))
    assert {split: len(part) for split, part in data.splits.items()} == {"train": 54, "valid": 6, "test": 30}
    assert sorted(data.splits["valid"].targets) == [0, 0, 1, 1, 2, 2]
    assert "6 of 60 rows were held out for validation." in data.notes
    assert data.names == {"train": "train.csv", "test": "test.csv"}
    more, test = tmp_path / "more.txt", rows(30, 2)
    more.write_text(f"{test[0][0]}\ntwo\n", encoding="utf-8")
    other = read(train, table(tmp_path / "other.csv", test), unlabeled=more)
    changed = {name for name, value in other.fingerprints.items() if value != data.fingerprints[name]}
    assert changed == {"test", "unlabeled"}
    assert other.unlabeled == [test[0][0], "two"]
    assert "2 unlabeled texts are used for pretraining; 1 are test texts." in other.notes


def test_known_test_rows_and_unknown_labels_are_noted_or_refused(train: Path, tmp_path: Path) -> None:
    (text, label), *_ = rows(60)
    known, odd = (text.replace(" ", "  "), label), [("odd", "cooking"), ("odder", "cooking")]
    notes = " ".join(read(train, table(tmp_path / "test.csv", [*rows(9, 1), known, *odd])).notes)
    assert "of the 12 test rows" in notes
    unseen = "2 rows with labels that never occur in training: cooking (test.csv, line 12; test.csv, line 13)"
    assert f"Counted as errors: {unseen}." in notes
    with pytest.raises(DataError, match=r"none of its labels \('cooking' and 'music'\)"):
        read(train, table(tmp_path / "test.csv", [("a text", "cooking"), ("another", "music")]))


@pytest.mark.parametrize("n_labels", [3, 99, 100])
def test_a_draw_is_the_same_again_and_holds_each_class(n_labels: int) -> None:
    values = np.array([0] * 90 + [1] * 8 + [2] * 2)
    first, again, other = (draw_rows(values, n_labels, number) for number in (0, 0, 1))
    assert (first == again).all()
    assert len(set(first.tolist())) == n_labels == len(first)
    assert set(values[first]) == {0, 1, 2}
    assert n_labels == 100 or set(first) != set(other)
    classes = np.arange(200) % 20  # more than labels: they are drawn at random
    drawn = [{*classes[draw_rows(classes, 3, number)].tolist()} for number in range(30)]
    assert {len(some) for some in drawn} == {3}
    assert len(set().union(*drawn)) > 15


# -- methods and recipes ----------------------------------------------------------------------


def test_methods_are_chosen_by_id_and_family() -> None:
    known = list(catalog().values())
    assert [method.id for method in choose_methods(known, ["tfidf-svm", "svd"])] == ["svd", "tfidf-svm"]
    assert {method.family for method in choose_methods(known, ["static", "linear"])} == {"static", "linear"}
    with pytest.raises(ConfigError, match="no method 'tfidf-smv'") as error:
        choose_methods(known, ["tfidf-smv"])
    assert "tfidf-svm" in error.value.remedy


@pytest.mark.parametrize("recipe", ["quick", "thorough", "write-ups"])
def test_every_recipe_is_a_plan_whose_steps_come_after_what_they_need(recipe: str) -> None:
    plan = make_plan(recipe, curve=[100, 300])
    steps = plan_steps(plan)
    assert len({step.id for step in steps}) == len(steps)
    ids = [step.id for step in steps]
    assert all(ids.index(need) < ids.index(step.id) for step in steps for need in step.needs)


def test_the_write_ups_recipe_holds_every_system() -> None:
    plan = make_plan("write-ups")
    assert not plan.left_out or "morfessor" in plan.left_out[0]
    inputs = {pretraining_config(m, 10**6).model.input for m in plan.methods if m.family == "elmo"}
    assert inputs == {"word", "char", "subword", "morpheme"}
    assert max(pretraining_config(m, 10**6).model.n_layers for m in plan.methods if m.family == "elmo") == 6
    config = pretraining_config(method(plan, "elmo-trainable"), 10**6)
    assert (config.model.dim, config.training.epochs) == (150, 10)


def test_the_mixes_share_one_language_model_and_static_heads_their_vectors() -> None:
    plan = make_plan("quick")
    elmos = {method.source for method in plan.methods if method.family == "elmo"}
    assert len(elmos) == 1
    assert len({method(plan, id).source for id in ("sgns", "sgns-linear", "sgns-function")}) == 1
    assert method(plan, "sgns").source != method(plan, "cbow").source
    assert sum(step.kind == "language-model" for step in plan_steps(plan)) == 1
    given = [replace(method, language_model={"fingerprint": "12ab"}) for method in plan.methods]
    assert not any(step.kind == "language-model" for step in plan_steps(replace(plan, methods=tuple(given))))
    ids = [step.id for step in plan_steps(plan)]
    assert {"sgns-s2", "tfidf-svm-s0"} <= set(ids)
    assert "tfidf-svm-s1" not in ids, "what uses no seed is fitted once"
    text = pretraining_config(method(plan, "elmo-trainable"), 10**6).text.to_dict()
    assert method(plan, "sgns").text == method(make_plan(methods="static"), "sgns").text == text


def test_methods_whose_package_is_missing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("gensim", "morfessor"):
        monkeypatch.setitem(sys.modules, package, None)
    plan = make_plan("write-ups")
    assert {"elmo-morpheme", "sgns", "cbow"}.isdisjoint(method.id for method in plan.methods)
    static, morpheme = plan.left_out
    assert static.startswith("sgns and cbow are left out: the package gensim is missing.")
    assert "pip install 'elmokit[static]'" in static
    assert morpheme.startswith("elmo-morpheme is left out: the package morfessor is missing.")
    curve = ["sgns-linear", "tfidf-svm"]  # also when they are asked for by name
    plan = make_plan("quick", methods=["svd", *curve], curve=[100], curve_methods=curve)
    assert [method.id for method in plan.methods] == ["svd", "tfidf-svm"]
    assert plan.curve == ("tfidf-svm",)
    for id, extra in (("sgns", "static"), ("elmo-morpheme", "morpheme")):
        with pytest.raises(MissingExtraError, match=id) as caught:
            make_plan("write-ups", methods=[id])
        assert f"elmokit[{extra}]" in caught.value.remedy


def test_a_toml_file_changes_settings_and_adds_variants(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(
        'seeds = 2\nmethods = ["svd-3", "elmo-trainable"]\n'
        '[classifier]\nhead = "bilstm"\n'
        "[language_model.training]\nepochs = 7\n"
        '[method.svd-3]\nlike = "svd"\n[method.svd-3.vectors]\nwindow = 3\n',
        encoding="utf-8",
    )
    plan = make_plan("quick", config=file)
    assert [method.id for method in plan.methods] == ["elmo-trainable", "svd-3"]
    assert plan.seeds == (0, 1)
    assert method(plan, "svd-3").vectors == {"dim": 300, "window": 3}
    assert all(method.classifier["head"] == "bilstm" for method in plan.methods)
    assert pretraining_config(method(plan, "elmo-trainable"), 10**6).training.epochs == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[classifer]\nhead = 'pool'", "no setting 'classifer'"),
        ("classifier = 3", "must be a section"),
        ("seeds = 0", "at least 1"),
        ("methods = 'svd'", "must be a list"),
        ("[method.x]\nlikes = 'svd'", "'likes'"),
        ("[method.x]\nlike = 'svdd'", "'svdd'"),
        ("[method.svd.vectors]\nwindo = 3", "windo"),
        ("[method.elmo-trainable.classifier]\nmix = 'mixed'", "elmo-trainable"),
        ("[language_model]\nmodel = 3", "must be a section"),
        ("[method.x]\nlike = 3", "must be text"),
        ('[method."../x"]\nlike = "svd"', "this name is not allowed"),
        ("[method.tfidf-lr.classifier]\nhead = 'pool'", "family linear has no classifier"),
        ("[method.elmo-frozen.vectors]\ndim = 3", "family elmo has no vectors"),
        ("[classifier]\nseed = 3", "has no seed of its own"),
    ],
)
def test_a_toml_file_that_means_nothing_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        make_plan("quick", config=file)
    assert said in str(error.value)


def test_a_common_head_leaves_methods_alone_whose_name_says_another() -> None:
    plan = make_plan("quick", config={"classifier": {"head": "bilstm", "max_words": 50}})
    heads = {method.id: method.classifier.get("head") for method in plan.methods}
    assert heads["elmo-frozen"] == heads["svd"] == "bilstm"
    assert heads["elmo-linear"] == heads["sgns-linear"] == "linear"
    assert method(plan, "elmo-linear").classifier["max_words"] == 50


def test_epochs_suit_the_size_of_the_text() -> None:
    plan = make_plan("quick")
    sizes = (10**4, 10**6, 10**8)
    elmo, sgns, svd = (method(plan, id) for id in ("elmo-trainable", "sgns", "svd"))
    for epochs in (
        [pretraining_config(elmo, n).training.epochs for n in sizes],
        [vectors_config(sgns, n).to_dict()["epochs"] for n in sizes],
        [fitting_config(elmo, 0, n).fit.epochs for n in sizes],
    ):
        assert epochs[0] > epochs[1] >= epochs[2]
    assert "epochs" not in vectors_config(svd, 1).to_dict()
    assert fitting_config(elmo, 3, 0).fit.epochs == 0
    assert fitting_config(elmo, 3, 0).fit.seed == 3


def test_a_plan_keeps_the_methods_and_heads_that_a_task_has() -> None:
    tag = TOYS["tag"]
    plan = plan_for_task(make_plan("thorough", curve=[100]), tag)
    assert "sgns" in [method.id for method in plan.methods]
    assert {"elmo-linear", "sgns-linear", "tfidf-svm"}.isdisjoint(method.id for method in plan.methods)
    assert plan.curve == ("elmo-trainable",)
    assert method(plan, "sgns").classifier["head"] == "auto"
    assert "tfidf-svm is left out: it cannot do the task 'tag'." in plan.left_out
    with pytest.raises(ConfigError, match="None of the methods can do the task 'tag'"):
        plan_for_task(make_plan(methods=["linear"]), tag)


def test_a_task_has_settings_of_its_own_unless_a_user_sets_them() -> None:
    tag = get_task("tag")
    usual = plan_for_task(make_plan("thorough"), tag)
    assert {one.classifier["head_dim"] for one in usual.methods} == {tag.settings["head_dim"]}
    assert {one.classifier["epochs"] for one in usual.methods} == {0}
    assert method(usual, "elmo-finetuned").classifier["lr"] == 1e-3
    mine = plan_for_task(make_plan("thorough", config={"classifier": {"head_dim": 8, "epochs": 7}}), tag)
    assert {(one.classifier["head_dim"], one.classifier["epochs"]) for one in mine.methods} == {(8, 7)}
    assert {one.classifier["head_layers"] for one in mine.methods} == {1}


# -- steps ------------------------------------------------------------------------------------


def test_the_folder_of_a_step_changes_with_its_settings_and_not_with_its_name() -> None:
    plan = make_plan("quick", methods=["svd", "elmo-frozen"])

    def folders(**changes: Any) -> set[str]:
        methods = tuple(method.vary(**changes) for method in plan.methods)
        return {step.folder for step in plan_steps(replace(plan, methods=methods))}

    n_kept = {"name": 9, "text": 2, "vectors": 2, "classifier": 3, "language_model": 1}  # of 6 fits, 3 others
    for name, n in n_kept.items():
        change: Any = "another" if name == "name" else {"new": 1}
        assert len(folders() & folders(**{name: change})) == n, name


def test_before_a_deadline_seed_0_and_cheap_methods_come_first() -> None:
    plan = make_plan("thorough", methods=["elmo-frozen", "elmo-finetuned", "sgns", "tfidf-lr"], curve=[50])
    fits = [step.id for step in plan_steps(plan, cheap_first=True) if step.kind == "fit"]
    firsts = ["tfidf-lr-s0", "sgns-s0", "elmo-frozen-s0", "elmo-finetuned-s0", "sgns-s1"]
    assert fits[:5] == firsts
    assert all("-n50-" in id for id in fits[-15:])
    assert plan_steps(plan)[0].kind == "language-model"
