from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from elmokit.bilm.settings import PRESETS, BilmConfig, PretrainConfig, TrainingConfig, resolve
from elmokit.core.config import Config, DropoutConfig, RunConfig, duration, merge_settings, read_toml
from elmokit.core.errors import ConfigError, ElmokitError, MissingExtraError, import_extra, nearest
from elmokit.tasks.settings import ClassifierConfig, FitConfig, HeadConfig
from elmokit.text.settings import PIPELINES, LabelConfig, ReadConfig, TextConfig, VocabularyConfig
from elmokit.vectors.settings import MixConfig

# The settings that one command takes.
PRETRAIN: tuple[type[Config], ...] = (TextConfig, VocabularyConfig, BilmConfig, TrainingConfig, ReadConfig)
FIT: tuple[type[Config], ...] = (ReadConfig, LabelConfig, MixConfig, HeadConfig, FitConfig)
ALL: tuple[type[Config], ...] = (*PRETRAIN, *FIT[1:], DropoutConfig, RunConfig)


def fields(class_: type[Config]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(class_)  # type: ignore[arg-type]


@pytest.mark.parametrize("class_", [*ALL, PretrainConfig, ClassifierConfig])
def test_settings_go_to_a_dictionary_and_back_and_cannot_be_changed(class_: type[Config]) -> None:
    config = class_()
    assert class_.from_dict(config.to_dict()) == config
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, fields(class_)[0].name, None)
    if class_ in ALL:
        assert [field.name for field in fields(class_) if not field.metadata.get("help")] == []


@pytest.mark.parametrize("classes", [PRETRAIN, FIT], ids=["pretrain", "fit"])
def test_no_two_settings_of_a_command_share_a_name(classes: tuple[type[Config], ...]) -> None:
    names = [field.name for class_ in classes for field in fields(class_)]
    assert len(names) == len(set(names))


def test_settings_of_a_classifier_find_their_section_by_name() -> None:
    config = ClassifierConfig.from_flat(mix="frozen", head_dim=7, lr=0.5, dropout_input=0.25)
    assert (config.mix.mix, config.head.head_dim) == ("frozen", 7)
    assert (config.fit.lr, config.fit.dropout_input) == (0.5, 0.25)
    with pytest.raises(ConfigError, match="head_dims"):
        ClassifierConfig.from_flat(head_dims=7)


WRONG: dict[type[Config], dict[str, list[object]]] = {
    BilmConfig: {
        "dim": [0, -3, 2.5, "8", True, None],
        "n_layers": [65],
        "residual": [1],
        "cell_clip": [0.0],
        "filters": [(), ((1, 0),), "1-4", 5],
        "input": ["chars"],
    },
    TrainingConfig: {
        "lr": ["fast", -1, float("nan"), 10**400],
        "held_out": [0.6],
        "epochs": [0],
        "seed": [2**31],
    },
    VocabularyConfig: {"min_count": [0]},
    ReadConfig: {"errors": ["skip"], "encoding": [8]},
    LabelConfig: {"label_column": [1], "drop_unlabeled": ["yes"]},
    MixConfig: {
        "mix": ["mean"],
        "mix_form": ["tanh"],
        "mix_width": [0],
        "mix_weights": ["1,two", "inf,1,1"],
    },
    HeadConfig: {"head": [5], "head_layers": [9], "dropout_head": [1.0]},
    FitConfig: {
        "epochs": [-1],
        "layer_decay": [0.0, 1.5],
        "valid_share": [0.0],
        "label_smoothing": [1.0],
        "class_weights": ["even"],
        "cache": [True],
    },
    DropoutConfig: {"dropout_word": [1.0]},
    RunConfig: {"max_steps": [0], "patience": [-1]},
}


@pytest.mark.parametrize("class_", WRONG)
def test_wrong_value_is_refused_by_the_name_of_its_field(class_: type[Config]) -> None:
    for name, values in WRONG[class_].items():
        for value in values:
            with pytest.raises(ConfigError, match=name):
                class_.from_dict({name: value})


@pytest.mark.parametrize("value", [[[1, 4], [2, 8]], "1:4,2:8"])
def test_values_are_converted_to_their_type(value: Any) -> None:
    assert BilmConfig(filters=value).filters == ((1, 4), (2, 8))
    assert isinstance(TrainingConfig(lr=1).lr, float)


@pytest.mark.parametrize(
    ("values", "nearest_name"), [({"hiden_dim": 8}, "'hidden_dim'"), ({"input": "chars"}, "'char'")]
)
def test_unknown_setting_or_choice_names_the_nearest(values: dict[str, Any], nearest_name: str) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))) as caught:
        BilmConfig.from_dict(values)
    assert nearest_name in caught.value.remedy


@pytest.mark.parametrize(
    "values",
    [
        {"tie": True},
        {"tie": True, "input": "word", "objective": "adaptive"},
        {"max_chars": 4, "filters": ((1, 4), (5, 4))},
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_a_remedy(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        BilmConfig.from_dict(values)
    assert caught.value.remedy


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_can_be_changed_setting_by_setting_and_stay_as_they_are(preset: str) -> None:
    before = resolve(preset)
    assert PretrainConfig.from_dict(before.to_dict()) == before
    assert "precision" not in before.to_dict()["training"]  # an older run goes on
    low = PretrainConfig(training=TrainingConfig(precision="bfloat16"))
    assert PretrainConfig.from_dict(low.to_dict()) == low
    config = resolve(preset, {"model": {"dim": 32, "n_layers": 1}}, {"model": {"dim": 16}})
    assert (config.model.dim, config.model.n_layers) == (16, 1)
    assert config.training == before.training
    assert resolve(preset) == before
    assert (before.text == PIPELINES["classic"]) == (preset == "classic")


@pytest.mark.parametrize(
    ("preset", "changes", "name"), [("tny", {}, "'tiny'"), ("tiny", {"modle": {}}, "'model'")]
)
def test_unknown_preset_or_section_names_the_nearest(preset: str, changes: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(preset, changes)
    assert name in caught.value.remedy


# -- TOML -------------------------------------------------------------------------------------


SECTIONS = get_type_hints(PretrainConfig)


def test_toml_file_is_read_by_section(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("[model]\ndim = 8\nfilters = [[1, 4], [2, 8]]\n[training]\nlr = 1e-3\n", encoding="utf-8")
    config = resolve("tiny", read_toml(file, SECTIONS))
    assert (config.model.filters, config.training.lr) == (((1, 4), (2, 8)), 1e-3)
    file.write_text("anything = 1\n", encoding="utf-8")
    assert read_toml(file) == {"anything": 1}


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"[model\ndim = 8\n", ["not valid TOML"]),
        (b"[modle]\ndim = 8\n", ["unknown section 'modle'", "'model'"]),
        (b"model = 8\n", ["[model]"]),
        (b"[model]\ndimm = 8\n", ["no setting 'dimm' in [model]", "'dim'"]),
        (b'[text]\nunicode = "caf\xe9"\n', ["not valid TOML"]),
        (None, ["Cannot read settings"]),
    ],
)
def test_bad_toml_file_is_named(tmp_path: Path, content: bytes | None, parts: list[str]) -> None:
    if content is not None:
        (tmp_path / "my.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"my\.toml") as caught:
        read_toml(tmp_path / "my.toml", SECTIONS)
    assert all(part in str(caught.value) for part in parts)


# -- flat settings ----------------------------------------------------------------------------


def test_flat_settings_find_their_places() -> None:
    merged = merge_settings(
        {"lr": 1, "model.dim": 8, "encoding": "latin-1"}, config=resolve("tiny"), read=ReadConfig()
    )
    config = merged["config"]
    assert isinstance(config, PretrainConfig)
    assert (config.training.lr, config.model.dim) == (1.0, 8)
    assert config.text == resolve("tiny").text
    assert merged["read"] == ReadConfig(encoding="latin-1")
    assert merge_settings({}, read=ReadConfig())["read"] == ReadConfig()


def test_flat_settings_that_belong_together_are_checked_together() -> None:
    merge_settings({"tie": True, "input": "word"}, model=BilmConfig())
    with pytest.raises(ConfigError):
        merge_settings({"tie": True}, model=BilmConfig())


def test_flat_settings_that_are_unknown_or_ambiguous_are_refused() -> None:
    for name, hint in (("lrr", "'lr'"), ("training.lrr", "training.lr"), ("model.lr", "config.training.lr")):
        with pytest.raises(ConfigError, match=name) as caught:
            merge_settings({name: 1}, config=PretrainConfig())
        assert hint in caught.value.remedy
    with pytest.raises(ConfigError, match="Several settings are called 'lr'") as caught:
        merge_settings({"lr": 1}, first=RunConfig(), second=RunConfig())
    assert caught.value.remedy == "Write first.lr or second.lr."
    assert merge_settings({"second.lr": 1}, first=RunConfig(), second=RunConfig())["first"] == RunConfig()


def test_durations_may_be_written_as_such_everywhere() -> None:
    assert merge_settings({"max_time": "1h30m"}, run=RunConfig())["run"] == RunConfig(max_time=5400)
    with pytest.raises(ConfigError, match="length of time"):
        RunConfig(max_time="soon")  # type: ignore[arg-type]


# -- small helpers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("45m", 2700), ("1.5h", 5400), ("1h30m", 5400), ("2d", 172800)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1w", "-5s", "1h-30m"])
def test_bad_duration_shows_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigError, match="length of time") as caught:
        duration(text)
    assert "45m" in caught.value.remedy


def test_nearest_names_the_closest_or_all_choices() -> None:
    assert nearest("modle", ["model", "text"]) == "Did you mean 'model'?"
    assert nearest("zzz", ["model", "text"]) == "Choose from: model, text."


def test_errors_show_message_and_remedy() -> None:
    assert str(ElmokitError("It broke.")) == "It broke."
    assert str(ElmokitError("It broke.", remedy="Mend it.")) == "It broke.\nMend it."
    assert "pip install 'elmokit[morpheme]'" in str(MissingExtraError("morfessor", "morpheme", "Morphemes"))


def test_only_a_package_that_is_missing_itself_is_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_extra.py").write_text("import a_package_that_it_needs\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert import_extra("json", "extra", "This").loads("1") == 1
    with pytest.raises(ModuleNotFoundError, match="a_package_that_it_needs"):
        import_extra("broken_extra", "extra", "This")
    with pytest.raises(MissingExtraError, match="This needs the package absent_extra"):
        import_extra("absent_extra.part", "extra", "This")


def test_an_error_names_the_setting_that_is_wrong() -> None:
    for values, name in (
        ({"lr": -1.0}, "lr"),
        ({"schedule": "none"}, "schedule"),
        ({"max_time": "x"}, "max_time"),
    ):
        with pytest.raises(ConfigError) as error:
            RunConfig(**values)
        assert error.value.setting == name
