from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from elmokit.bilm.settings import PRESETS, BilmConfig, PretrainConfig, TrainingConfig, resolve
from elmokit.core.config import Config, DropoutConfig, RunConfig, duration, merge_settings, read_toml
from elmokit.core.errors import ConfigError, ElmokitError, MissingExtraError, nearest
from elmokit.tasks.settings import ClassifierConfig, FitConfig, HeadConfig
from elmokit.text.settings import PIPELINES, LabelConfig, ReadConfig, TextConfig, VocabularyConfig
from elmokit.vectors.settings import MixConfig

# The settings that one command takes.
PRETRAIN: tuple[type[Config], ...] = (TextConfig, VocabularyConfig, BilmConfig, TrainingConfig, ReadConfig)
FIT: tuple[type[Config], ...] = (ReadConfig, LabelConfig, MixConfig, HeadConfig, FitConfig)
ALL: tuple[type[Config], ...] = (*PRETRAIN, *FIT[1:], DropoutConfig, RunConfig)


def fields(class_: type[Config]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(class_)  # type: ignore[arg-type]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_goes_to_a_dictionary_and_back(preset: str) -> None:
    config = resolve(preset)
    assert PretrainConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize("class_", ALL)
def test_every_setting_has_a_help_text(class_: type[Config]) -> None:
    assert [field.name for field in fields(class_) if not field.metadata.get("help")] == []


@pytest.mark.parametrize("classes", [PRETRAIN, FIT], ids=["pretrain", "fit"])
def test_no_two_settings_of_a_command_share_a_name(classes: tuple[type[Config], ...]) -> None:
    names = [field.name for class_ in classes for field in fields(class_)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("class_", [*ALL, PretrainConfig, ClassifierConfig])
def test_defaults_go_to_a_dictionary_and_back(class_: type[Config]) -> None:
    assert class_.from_dict(class_().to_dict()) == class_()


def test_settings_of_a_classifier_find_their_section_by_name() -> None:
    config = ClassifierConfig.from_flat(mix="frozen", head_dim=7, lr=0.5, dropout_input=0.25)
    assert (config.mix.mix, config.head.head_dim) == ("frozen", 7)
    assert (config.fit.lr, config.fit.dropout_input) == (0.5, 0.25)
    with pytest.raises(ConfigError, match="head_dims"):
        ClassifierConfig.from_flat(head_dims=7)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TextConfig().lowercase = True  # type: ignore[misc]


@pytest.mark.parametrize(
    ("class_", "name", "value"),
    [
        (BilmConfig, "dim", 0),
        (BilmConfig, "dim", -3),
        (BilmConfig, "n_layers", 65),
        (BilmConfig, "dim", 2.5),
        (BilmConfig, "dim", "8"),
        (BilmConfig, "dim", True),
        (BilmConfig, "dim", None),
        (BilmConfig, "residual", 1),
        (BilmConfig, "cell_clip", 0.0),
        (BilmConfig, "filters", ()),
        (BilmConfig, "filters", ((1, 0),)),
        (BilmConfig, "filters", "1-4"),
        (BilmConfig, "filters", 5),
        (BilmConfig, "input", "chars"),
        (TrainingConfig, "lr", "fast"),
        (TrainingConfig, "lr", -1),
        (TrainingConfig, "lr", float("nan")),
        (TrainingConfig, "held_out", 0.6),
        (TrainingConfig, "epochs", 0),
        (TrainingConfig, "seed", 2**31),
        (VocabularyConfig, "min_count", 0),
        (ReadConfig, "errors", "skip"),
        (ReadConfig, "encoding", 8),
        (LabelConfig, "label_column", 1),
        (LabelConfig, "drop_unlabeled", "yes"),
        (MixConfig, "mix", "mean"),
        (MixConfig, "mix_form", "tanh"),
        (MixConfig, "mix_width", 0),
        (MixConfig, "mix_weights", "1,two"),
        (MixConfig, "mix_weights", "inf,1,1"),
        (HeadConfig, "head", 5),
        (HeadConfig, "head_layers", 9),
        (HeadConfig, "dropout_head", 1.0),
        (FitConfig, "epochs", -1),
        (FitConfig, "layer_decay", 0.0),
        (FitConfig, "layer_decay", 1.5),
        (FitConfig, "valid_share", 0.0),
        (FitConfig, "label_smoothing", 1.0),
        (FitConfig, "class_weights", "even"),
        (FitConfig, "cache", True),
        (DropoutConfig, "dropout_word", 1.0),
        (RunConfig, "max_steps", 0),
        (RunConfig, "patience", -1),
    ],
)
def test_wrong_value_is_refused_by_the_name_of_its_field(
    class_: type[Config], name: str, value: object
) -> None:
    with pytest.raises(ConfigError, match=name):
        class_.from_dict({name: value})


def test_range_error_says_the_range() -> None:
    with pytest.raises(ConfigError, match=r"at least 0 and at most 0\.5"):
        TrainingConfig(held_out=0.7)


def test_whole_number_does_for_a_float() -> None:
    config = TrainingConfig(lr=1)
    assert isinstance(config.lr, float)


@pytest.mark.parametrize("value", [[[1, 4], [2, 8]], [["1", "4"], ["2", "8"]], ((1, 4), (2, 8))])
def test_filters_are_read_from_lists_and_text(value: Any) -> None:
    assert BilmConfig(filters=value).filters == ((1, 4), (2, 8))


def test_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="hiden_dim") as caught:
        BilmConfig.from_dict({"hiden_dim": 8})
    assert "'hidden_dim'" in caught.value.remedy


def test_unknown_choice_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="input") as caught:
        BilmConfig.from_dict({"input": "chars"})
    assert "'char'" in caught.value.remedy


@pytest.mark.parametrize("value", [5, "tiny", None, [1], TextConfig()])
def test_section_must_be_settings_of_its_own_kind(value: object) -> None:
    with pytest.raises(ConfigError, match="model"):
        PretrainConfig.from_dict({"model": value})


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


def test_later_settings_win_field_by_field() -> None:
    config = resolve("tiny", {"model": {"dim": 32, "n_layers": 1}}, {"model": {"dim": 16}})
    assert (config.model.dim, config.model.n_layers) == (16, 1)
    assert config.model.hidden_dim == PRESETS["tiny"]["model"]["hidden_dim"]


def test_resolving_changes_no_preset() -> None:
    before = resolve("tiny")
    resolve("tiny", {"model": {"dim": 3}, "text": {"lowercase": True}})
    assert resolve("tiny") == before


def test_classic_preset_cleans_as_the_classic_pipeline() -> None:
    assert resolve("classic").text == PIPELINES["classic"]


def test_unknown_preset_or_section_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="tny") as caught:
        resolve("tny")
    assert "'tiny'" in caught.value.remedy
    with pytest.raises(ConfigError, match="modle") as caught:
        resolve("tiny", {"modle": {}})
    assert "'model'" in caught.value.remedy


# -- TOML -------------------------------------------------------------------------------------


SECTIONS = get_type_hints(PretrainConfig)


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "my.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_toml_file_is_read_by_section(tmp_path: Path) -> None:
    file = toml(tmp_path, "[model]\ndim = 8\nfilters = [[1, 4], [2, 8]]\n[training]\nlr = 1e-3\n")
    config = resolve("tiny", read_toml(file, SECTIONS))
    assert config.model.filters == ((1, 4), (2, 8))
    assert config.training.lr == 1e-3


@pytest.mark.parametrize(
    ("text", "part"),
    [("[model\ndim = 8\n", "TOML"), ("[modle]\ndim = 8\n", "'model'"), ("model = 8\n", r"[model]")],
)
def test_bad_toml_file_is_named(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_toml(toml(tmp_path, text), SECTIONS)
    assert "my.toml" in caught.value.message
    assert part in str(caught.value)


def test_toml_file_that_is_missing_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml"):
        read_toml(tmp_path / "none.toml", SECTIONS)
    (tmp_path / "latin.toml").write_bytes(b'[text]\nunicode = "caf\xe9"\n')
    with pytest.raises(ConfigError, match=r"latin\.toml"):
        read_toml(tmp_path / "latin.toml", SECTIONS)


def test_unknown_name_in_a_toml_file_is_named_with_its_section(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"my\.toml: there is no setting 'dimm' in \[model\]") as caught:
        read_toml(toml(tmp_path, "[model]\ndimm = 8\n"), SECTIONS)
    assert "'dim'" in caught.value.remedy
    assert read_toml(toml(tmp_path, "anything = 1\n")) == {"anything": 1}


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


@pytest.mark.parametrize("text", ["", "soon", "1w", "-5s", "5 s x", "1h-30m"])
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
