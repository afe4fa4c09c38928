"""``ElmoVectorizer`` among scikit-learn's tools, and ``Elmo.encode`` as other tools call it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder

import topics
from elmokit import Elmo, ElmoVectorizer, WordVectors
from elmokit.core.errors import ConfigError, DataError
from elmokit.text.settings import TextConfig

TEXTS, LABELS = map(list, zip(*topics.rows(60), strict=True))


# -- ElmoVectorizer ---------------------------------------------------------------------------


def test_vectors_are_those_of_the_encoder(encoder: Path) -> None:
    elmo = Elmo.load(encoder)
    out = elmo.embed(TEXTS)
    for pooling in ("mean", "max", "last", "sif"):
        vectors = ElmoVectorizer(encoder, pooling=pooling, weights=(1.0, 0.0, 2.0)).fit_transform(TEXTS)
        assert np.array_equal(vectors, out.sentence(pooling, weights=(1.0, 0.0, 2.0)))
    top = ElmoVectorizer(elmo, pooling="mean", layer=-1).transform(TEXTS)
    assert np.array_equal(top, out.sentence("mean", layer=-1))
    assert np.array_equal(ElmoVectorizer(elmo).transform(np.array(TEXTS)), elmo.sentences(TEXTS))
    units = ElmoVectorizer(elmo, normalize=True).transform([*TEXTS, ""])
    assert np.allclose(np.linalg.norm(units, axis=1), [1.0] * 60 + [0.0])
    assert ElmoVectorizer(elmo).transform([]).shape == (0, elmo.dim)


def test_it_is_cloned_pickled_and_loaded_by_name(encoder: Path, tmp_path: Path) -> None:
    made = ElmoVectorizer(encoder, pooling="mean")
    expected = made.fit(TEXTS).transform(TEXTS)
    assert len(pickle.dumps(made)) < 1000
    joblib.dump(made, tmp_path / "made.joblib")
    for copy in (clone(made), joblib.load(tmp_path / "made.joblib"), pickle.loads(pickle.dumps(made))):
        assert copy.get_params() == made.get_params()
        assert np.array_equal(copy.transform(TEXTS), expected)
    loaded = ElmoVectorizer(Elmo.load(encoder), pooling="mean")
    assert np.array_equal(pickle.loads(pickle.dumps(loaded)).transform(TEXTS), expected)
    assert np.array_equal(clone(loaded).transform(TEXTS), expected)


def test_another_name_means_another_model(encoder: Path, tiny_model: Path) -> None:
    made = ElmoVectorizer(encoder)
    assert made.transform(["a"]).shape == (1, Elmo.load(encoder).dim)
    assert made.set_params(encoder=tiny_model).transform(["a"]).shape == (1, 16)


def test_pipelines_unions_and_grid_search_in_processes_work(encoder: Path) -> None:
    union = FeatureUnion(
        [("mean", ElmoVectorizer(encoder, pooling="mean")), ("own", ElmoVectorizer(encoder))]
    )
    both = make_pipeline(union, LogisticRegression())
    assert both.fit(TEXTS, LABELS).score(TEXTS, LABELS) == 1.0
    pipeline = make_pipeline(ElmoVectorizer(encoder), LogisticRegression())
    grid = {"elmovectorizer__pooling": ["mean", "max"], "logisticregression__C": [1.0, 100.0]}
    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=2, error_score="raise").fit(TEXTS, LABELS)
    assert search.score(TEXTS, LABELS) >= 0.9


def test_columns_of_a_table_and_names_of_features(encoder: Path) -> None:
    table = np.array([[text, label] for text, label in zip(TEXTS, LABELS, strict=True)], dtype=object)
    parts = [("text", ElmoVectorizer(encoder), 0), ("label", OneHotEncoder(), [1])]
    columns = ColumnTransformer(parts).fit(table)
    dim = Elmo.load(encoder).dim
    assert columns.transform(table).shape == (60, dim + 3)
    names = columns.get_feature_names_out()
    assert (names[0], names[dim - 1]) == ("text__elmovectorizer0", f"text__elmovectorizer{dim - 1}")


def test_a_table_of_pandas_gives_one_back(encoder: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame({"text": TEXTS, "n": range(60)}, index=range(100, 160))
    columns = ColumnTransformer([("text", ElmoVectorizer(encoder), "text")], remainder="passthrough")
    out = columns.set_output(transform="pandas").fit_transform(table)
    assert list(out.columns[[0, -1]]) == ["text__elmovectorizer0", "remainder__n"]
    assert list(out.index) == list(table.index)
    with pytest.raises(DataError, match="not a table"):
        ColumnTransformer([("text", ElmoVectorizer(encoder), ["text"])]).fit(table)


def test_word_vectors_have_a_mean() -> None:
    table = WordVectors.of(["we", "saw"], np.eye(2), TextConfig())
    for pooling in ("mean", "sentence"):
        assert ElmoVectorizer(table, pooling=pooling).transform(["we saw we"]).shape == (1, 2)
    with pytest.raises(ConfigError, match="apply only to ELMo models"):
        ElmoVectorizer(table, pooling="max").fit(TEXTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": "men"}, "no pooling 'men'"),
        ({"pooling": "mean", "layer": 7}, "no layer 7"),
        ({"pooling": "mean", "weights": (1.0,)}, "1 weights were given for 3"),
        ({"layer": 1}, "apply only to ELMo models"),
    ],
)
def test_wrong_settings_are_refused_when_fitting(
    encoder: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ElmoVectorizer(encoder, **settings).fit(TEXTS)


@pytest.mark.parametrize(
    ("texts", "message"), [("a text", "list of texts"), (["a", None], "Text 1 is neither")]
)
def test_what_is_no_list_of_texts_is_refused(encoder: Path, texts: Any, message: str) -> None:
    for call in (ElmoVectorizer(encoder).transform, Elmo.load(encoder).encode):
        if texts != "a text" or call.__name__ == "transform":
            with pytest.raises((ConfigError, DataError), match=message):
                call(texts)


# -- Elmo.encode ------------------------------------------------------------------------------


def test_encode_is_sentences_for_one_text_and_for_many(elmo: Elmo) -> None:
    texts = [*TEXTS[:7], "", "...", "été 😀"]
    expected = elmo.sentences(texts)
    for options in ({}, {"batch_size": 3}, {"show_progress_bar": True, "convert_to_numpy": True}):
        assert np.allclose(elmo.encode(texts, **options), expected, atol=1e-6)
    assert np.allclose(elmo.encode(texts[0]), expected[0], atol=1e-6)
    lengths = np.linalg.norm(elmo.encode(texts, normalize_embeddings=True), axis=1)
    assert np.allclose(lengths, [float(row.any()) for row in expected], atol=1e-6)
    assert elmo.encode([]).shape == (0, elmo.dim)
