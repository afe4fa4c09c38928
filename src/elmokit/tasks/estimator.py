"""``ElmoClassifier``: text classification the scikit-learn way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split

from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError
from elmokit.tasks.encoders import load_encoder
from elmokit.tasks.folder import load_classifier, save_classifier
from elmokit.tasks.model import Targets, TextClassifier
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.trainer import fit_classifier
from elmokit.text.tokenizing import reject_table

__all__ = ["ElmoClassifier", "validation_split"]

Texts = Sequence[Any] | npt.NDArray[Any]
Labels = Sequence[Any] | npt.NDArray[Any]


class ElmoClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A text classifier on top of a biLM: strings in, labels of any type out.

    >>> clf = ElmoClassifier("news-elmo", mix="trainable").fit(texts, labels)   # doctest: +SKIP
    >>> clf.predict(["Rates rose again."])                                      # doctest: +SKIP

    Works with ``clone``, ``Pipeline``, ``cross_val_score``, ``GridSearchCV`` and joblib.

    Args:
        encoder: a folder that ``elmokit pretrain`` (or ``elmokit baseline``) has made.
        mix: "trainable" (one trained weight per layer), "frozen" or "function".
        mix_form: "raw", or "softmax" times gamma as in the published ELMo.
        mix_weights: weights for the layers, as in "0.2,0.3,0.5".
        head: "pool" or "bilstm".
        head_dim: its width.
        finetune: train the encoder, too.
        epochs: passes over the rows; 0 chooses by their number.
        lr: highest learning rate of mix and head.
        encoder_lr: highest learning rate of a fine-tuned encoder's top layer.
        dropout_head: dropout in the head.
        dropout_word: share of words blanked.
        label_smoothing: share of each target given to all classes.
        class_weight: None, or "balanced".
        valid_share: share of rows set aside to choose the best weights by.
        seed: seed of everything random.
        options: further settings by name (see ``elmokit fit --help``).
        verbose: show progress.

    Attributes:
        classes_: the labels, sorted.
        history_: figures of each epoch.
        classifier_: the fitted ``TextClassifier``.
    """

    def __init__(
        self,
        encoder: str | Path = "",
        *,
        mix: str = "trainable",
        mix_form: str = "raw",
        mix_weights: str = "",
        head: str = "pool",
        head_dim: int = 128,
        finetune: bool = False,
        epochs: int = 0,
        lr: float = 2e-3,
        encoder_lr: float = 1e-3,
        dropout_head: float = 0.2,
        dropout_word: float = 0.05,
        label_smoothing: float = 0.0,
        class_weight: str | None = None,
        valid_share: float = 0.1,
        seed: int = 0,
        options: dict[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        self.encoder = encoder
        self.mix = mix
        self.mix_form = mix_form
        self.mix_weights = mix_weights
        self.head = head
        self.head_dim = head_dim
        self.finetune = finetune
        self.epochs = epochs
        self.lr = lr
        self.encoder_lr = encoder_lr
        self.dropout_head = dropout_head
        self.dropout_word = dropout_word
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight
        self.valid_share = valid_share
        self.seed = seed
        self.options = options
        self.verbose = verbose

    def config(self) -> ClassifierConfig:
        """All settings, checked."""
        if self.class_weight not in (None, "balanced"):
            raise ConfigError(
                f"class_weight = {self.class_weight!r} is not a choice.", remedy="Choose None or 'balanced'."
            )
        direct = ("encoder", "class_weight", "options", "verbose")
        values = {name: value for name, value in self.get_params(deep=False).items() if name not in direct}
        values["class_weights"] = self.class_weight or "equal"
        return ClassifierConfig.from_flat(**{**values, **(self.options or {})})

    def fit(
        self,
        X: Texts,  # noqa: N803 (scikit-learn's name)
        y: Labels,
        sample_weight: Sequence[float] | None = None,
        *,
        valid: tuple[Texts, Labels] | None = None,
    ) -> ElmoClassifier:
        """Learn from texts and their labels.

        Args:
            X: raw texts (or lists of words).
            y: a label each, of any one type; or for several labels per text, an array of ones
                and zeros, (n_texts, n_classes).
            sample_weight: how much each text counts.
            valid: texts and labels to choose the best weights by; else a share is set aside.
        """
        config = self.config()
        texts, labels = _checked(X), _array(y)
        if len(texts) != len(labels):
            raise DataError(f"There are {len(texts)} texts, but {len(labels)} labels.")
        weights = None
        if sample_weight is not None:
            weights = np.asarray(sample_weight, dtype=np.float32)
            if weights.shape != (len(texts),) or not np.isfinite(weights).all() or (weights < 0).any():
                raise DataError("sample_weight must hold one finite number of at least 0 for each text.")
            if not weights.sum() > 0:
                raise DataError("All sample weights are zero.")
        self.classes_, values = _numbered(labels)
        held = np.zeros(len(texts), dtype=bool)
        if valid is None:
            held = validation_split(values, config.fit.valid_share, config.fit.seed)
            valid_texts, valid_values = [texts[i] for i in np.flatnonzero(held)], values[held]
        else:
            valid_texts = _checked(valid[0])
            valid_values = _numbered(_array(valid[1]), self.classes_)[1]
        names = [str(name) for name in self.classes_.tolist()]
        train_texts = [texts[i] for i in np.flatnonzero(~held)]
        result = fit_classifier(
            load_encoder(self.encoder),
            (train_texts, Targets(names, values[~held], None if weights is None else weights[~held])),
            (valid_texts, Targets(names, valid_values)),
            config,
            reporter=Reporter("auto" if self.verbose else "silent"),
        )
        if result.stopped == "interrupted":
            raise KeyboardInterrupt
        record: dict[str, Any] = {"history": result.history, "mix_start": result.mix_start}
        if all(isinstance(label, str | int | float) for label in self.classes_.tolist()):  # as JSON has them
            record["labels"] = self.classes_.tolist()
        self.classifier_ = replace(result.classifier, record=record)
        self.history_ = result.history
        return self

    def predict_proba(self, X: Texts) -> npt.NDArray[np.float32]:  # noqa: N803
        """The probability of each class, in the order of ``classes_``."""
        return self._fitted().probabilities(_checked(X))

    def predict(self, X: Texts) -> npt.NDArray[Any]:  # noqa: N803
        """The most probable label of each text; ones and zeros if there can be several."""
        probabilities = self.predict_proba(X)
        if self._fitted().multilabel:
            return (probabilities > 0.5).astype(np.int64)
        found: npt.NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return found

    def save(self, folder: str | Path) -> None:
        """Write the fitted classifier as a folder. Labels that are no text, number or truth value
        become text."""
        save_classifier(folder, self._fitted())

    @classmethod
    def load(cls, folder: str | Path) -> ElmoClassifier:
        """Open a classifier folder."""
        classifier = load_classifier(folder)
        made = cls(Path(folder) / "encoder", **_parameters(classifier.network.config))
        made.classifier_ = classifier
        made.classes_ = np.array(classifier.record.get("labels", classifier.classes))
        if classifier.multilabel:
            made.classes_ = np.arange(len(classifier.classes))
        made.history_ = classifier.record.get("history", [])
        return made

    def _fitted(self) -> TextClassifier:
        if not hasattr(self, "classifier_"):
            raise NotFittedError("This ElmoClassifier is not fitted yet; call fit first.")
        return self.classifier_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.classifier_tags.multi_label = True
        return tags


def validation_split(values: npt.NDArray[Any], share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which rows are set aside: a share of all and, as far as it goes, of each class."""
    n_rows = len(values)
    held = np.zeros(n_rows, dtype=bool)
    if n_rows < 2:
        return held
    if values.ndim == 2:
        _, aside = train_test_split(np.arange(n_rows), test_size=share, random_state=seed)
        held[aside] = True
        return held
    rng = np.random.default_rng(seed)
    labels, counts = np.unique(values, return_counts=True)
    wanted = np.minimum(share * counts, counts - 1)  # one row at least stays to train on
    quotas = np.floor(wanted).astype(int)
    # What the rounding leaves over goes to the classes that lost most by it.
    spare = max(1, round(share * n_rows)) - int(quotas.sum())
    behind = np.argsort(quotas - wanted, kind="stable")
    for place in [place for place in behind if counts[place] - 1 > quotas[place]][: max(0, spare)]:
        quotas[place] += 1
    for label, quota in zip(labels, quotas, strict=True):
        held[rng.permutation(np.flatnonzero(values == label))[:quota]] = True
    return held


def _parameters(config: ClassifierConfig) -> dict[str, Any]:
    """The estimator's parameters that give these settings."""
    flat, usual = (
        {**part.mix.to_dict(), **part.head.to_dict(), **part.fit.to_dict()}
        for part in (config, ClassifierConfig())
    )
    balanced = flat.pop("class_weights") == "balanced"
    known = [name for name in ElmoClassifier().get_params(deep=False) if name in flat]
    others = {name: value for name, value in flat.items() if name not in known and value != usual[name]}
    return {
        **{name: flat[name] for name in known},
        "class_weight": "balanced" if balanced else None,
        "options": others or None,
    }


def _checked(texts: Texts) -> list[Any]:
    if isinstance(texts, str):
        raise DataError("Give a list of texts, not one string.", remedy="Put it in a list: [text].")
    reject_table(texts)
    found = list(texts)
    for place, text in enumerate(found):
        if not isinstance(text, str | list | tuple):
            raise DataError(
                f"Text {place} is not a string, but {type(text).__name__}.",
                remedy="Turn missing values into empty strings first.",
            )
    return [str(text) if isinstance(text, str) else text for text in found]


def _array(labels: Labels) -> npt.NDArray[Any]:
    try:
        return np.asarray(labels)
    except ValueError as error:  # lists of several lengths
        raise DataError(
            "The labels are neither one for each text nor a table.",
            remedy="For several labels per text, give ones and zeros, (n_texts, n_classes).",
        ) from error


def _numbered(labels: npt.NDArray[Any], classes: npt.NDArray[Any] | None = None) -> tuple[Any, Any]:
    """The distinct labels, and the number of each."""
    if labels.ndim == 2:
        if not np.isin(labels, (0, 1)).all():
            raise DataError("Several labels per text are given as ones and zeros, (n_texts, n_classes).")
        if classes is not None and len(classes) != labels.shape[1]:
            raise DataError(
                f"There are {len(classes)} classes, but {labels.shape[1]} in the validation labels."
            )
        return np.arange(labels.shape[1]), labels.astype(np.float32)
    if labels.dtype == object and any(label is None or label != label for label in labels):
        raise DataError("Some labels are missing.", remedy="Give every text a label, or leave it out.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise DataError("Some labels are missing (NaN).", remedy="Give every text a label, or leave it out.")
    try:
        found = np.unique(labels) if classes is None else classes
    except TypeError as error:
        raise DataError(
            f"The labels are of types that cannot be sorted: {error}.", remedy="Make them all text."
        ) from error
    if len(found) < 2:
        raise DataError(
            f"There is only one class ({found.tolist()[0]!r})." if len(found) else "There are no labels.",
            remedy="A classifier needs rows of at least two classes.",
        )
    places = np.searchsorted(found, labels)
    places = np.minimum(places, len(found) - 1)
    if (found[places] != labels).any():
        odd = labels[found[places] != labels].tolist()[0]
        raise DataError(f"The validation label {odd!r} is not among the training labels.")
    return found, places.astype(np.int64)
