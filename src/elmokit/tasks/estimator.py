"""``TextClassifier`` and ``ElmoVectorizer``: labels and vectors of texts the scikit-learn way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from rich.markup import escape
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import nn

from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError, ModelError
from elmokit.core.names import DEFAULT
from elmokit.tasks.classification import OwnClassification
from elmokit.tasks.fit import (
    describe_encoder,
    hold_out,
    judge,
    judge_stack,
    measure,
    measure_rival,
    open_predictor,
)
from elmokit.tasks.model import TaskModel, load_encoder
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.stack import StackModel, fit_stack
from elmokit.tasks.task import AnyTask, Examples, Labels, get_task
from elmokit.tasks.trainer import fit_task
from elmokit.text.tokenizing import check_texts
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.embeddings import Pooling
from elmokit.vectors.encoder import Encoder, FloatArray
from elmokit.vectors.foreign import open_encoder
from elmokit.vectors.side_by_side import join_encoders

Texts = Sequence[Any] | npt.NDArray[Any]


class _TextEstimator(BaseEstimator):  # type: ignore[misc]
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


@dataclass(eq=False, repr=False)
class TextClassifier(ClassifierMixin, _TextEstimator):  # type: ignore[misc]
    """A text classifier on top of an encoder: strings in, labels of any type out.

    >>> clf = TextClassifier().fit(texts, labels)                               # doctest: +SKIP
    >>> clf.predict(["Rates rose again."])                                      # doctest: +SKIP

    Works with ``clone``, ``Pipeline``, ``cross_val_score``, ``GridSearchCV`` and joblib.

    Args:
        encoder: A bundled model, or a folder that ``elmokit pretrain`` or ``elmokit baseline`` has made.
        with_: Further encoders, whose vectors stand beside those of the first.
        mix, head: By name, or a class of your own; docs/integrations.md shows how to write one.
        class_weight: None, or "balanced".
        options: Further settings by name; ``elmokit fit --help-all`` lists and explains all of them.
        verbose: Show progress, and how simple methods do on the same rows.

    Attributes:
        classes_: The labels, sorted.
        history_: Scores of each epoch; empty for the stack.
        model_: The fitted ``StackModel`` or ``TaskModel``.
    """

    encoder: str | Path = DEFAULT
    _: KW_ONLY
    with_: str | Path | Sequence[str | Path] = ()
    mix: str | type[nn.Module] = "trainable"
    mix_form: str = "raw"
    mix_weights: str = ""
    head: str | type[nn.Module] = "auto"
    head_dim: int = 128
    finetune: bool = False
    epochs: int = 0
    lr: float = 2e-3
    encoder_lr: float = 1e-3
    dropout_head: float = 0.2
    dropout_word: float = 0.05
    label_smoothing: float = 0.0
    class_weight: str | None = None
    valid_share: float = 0.1
    seed: int = 0
    options: dict[str, Any] | None = None
    verbose: bool = False

    def config(self) -> ClassifierConfig:
        """All settings, checked."""
        direct = ("encoder", "with_", "class_weight", "options", "verbose")
        values = {name: value for name, value in self.get_params(deep=False).items() if name not in direct}
        values["class_weights"] = self.class_weight or "equal"
        if not isinstance(self.mix, str):
            values["mix"] = "trainable"
            values["head"] = "pool" if self.head == "auto" else self.head
        if not isinstance(self.head, str):
            values["head"] = self.head.__name__
        return ClassifierConfig.from_flat(**{**values, **(self.options or {})})

    def fit(
        self,
        X: Texts,  # noqa: N803 (scikit-learn's name)
        y: Texts,
        sample_weight: Sequence[float] | None = None,
        *,
        valid: tuple[Texts, Texts] | None = None,
    ) -> TextClassifier:
        """Learn from texts and their labels.

        Args:
            X: Raw texts, or lists of words.
            y: A label for each, all of one type; or for several labels per text, an array of ones and
                zeros, (n_texts, n_classes).
            sample_weight: How much each text counts.
            valid: Texts and labels to choose the best weights of a trained head by; otherwise a share is
                held out. The stack (``head="auto"``) does not need them.
        """
        config = self.config()
        classes, examples = _read(X, y)
        if sample_weight is not None:
            weights = np.asarray(sample_weight, dtype=np.float32)
            if weights.shape != (len(examples),) or not np.isfinite(weights).all() or (weights < 0).any():
                raise DataError("sample_weight must hold one finite number of at least 0 for each text.")
            examples = replace(examples, weights=weights)
        reporter = Reporter("auto" if self.verbose else "silent")
        more = [self.with_] if isinstance(self.with_, str | Path) else self.with_
        opened = map(open_encoder if config.is_stack else load_encoder, (self.encoder, *more))
        encoder: Any = join_encoders([*opened])
        model: TaskModel | StackModel
        if config.is_stack:
            stack = fit_stack(encoder, examples, config, rivals=self.verbose, reporter=reporter)
            model = stack.model
        else:
            task = self._task()
            if valid is None:
                examples, other = hold_out(examples, config.fit.valid_share, config.fit.seed)
            else:
                other = _read(*valid, classes)[1]
            model = fit_task(task, encoder, examples, other, config, reporter=reporter)
            if model.record.stopped == "interrupted":
                raise KeyboardInterrupt
        rivals = model.record.rivals
        if self.verbose:
            for note in model.record.notes:
                reporter.say(f"[yellow]{escape(note)}[/]")
            if config.is_stack:
                judge_stack(stack, examples, reporter)
            else:
                parts = {"train": examples, "valid": other}
                rivals = measure_rival(parts, task, config.fit.seed)
                judge(cast(TaskModel, model), measure(model, parts, reporter)[0], rivals, reporter)
        plain = all(isinstance(label, str | int | float) for label in classes.tolist())  # as JSON has them
        facts, names = describe_encoder(encoder, [self.encoder, *more]), classes.tolist() if plain else ()
        record = replace(model.record, labels=names, encoder=facts, rivals=rivals)
        self.classes_, self.history_ = classes, record.history
        self.model_ = replace(model, record=record)
        return self

    def _task(self) -> AnyTask:
        """Classification, with the parts that are classes."""
        if self.head == "linear" and not isinstance(self.mix, str):
            raise ConfigError(
                "The linear head does not train a mix.", remedy="Use another head, or your own."
            )
        own = {name: part for name in ("head", "mix") if not isinstance(part := getattr(self, name), str)}
        return OwnClassification(**own) if own else get_task("classify")

    def predict_proba(self, X: Texts) -> npt.NDArray[np.float32]:  # noqa: N803
        """The probability of each class, in the order of ``classes_``."""
        check_is_fitted(self)
        check_texts(X)
        rows = [one.probabilities for one in self.model_.predict((text,) for text in X)]
        return np.array(rows, dtype=np.float32).reshape(-1, len(self.model_.labels))

    def predict(self, X: Texts) -> npt.NDArray[Any]:  # noqa: N803
        """The most probable label of each text; ones and zeros if there can be several."""
        probabilities = self.predict_proba(X)
        if self.model_.labels.separator:
            return (probabilities > 0.5).astype(np.int64)
        labels: npt.NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return labels

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder. Labels other than text, numbers and truth values become text."""
        check_is_fitted(self)
        self.model_.save(folder)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        head: type[nn.Module] | None = None,
        mix: type[nn.Module] | None = None,
    ) -> TextClassifier:
        """Read a folder that ``save`` or ``elmokit fit`` has written.

        Args:
            head, mix: The classes that it was fitted with, if they are your own: a folder holds no code.
        """
        own = {name: part for name, part in (("head", head), ("mix", mix)) if part}
        model: Any = TaskModel.load(folder, OwnClassification(**own)) if own else open_predictor(folder)
        if not hasattr(model, "config"):
            raise ModelError(
                f"{folder} holds a linear model over counts of words.", remedy="Open it with elmokit.load."
            )
        flat, usual = model.config.to_flat(), ClassifierConfig().to_flat()
        weight = "balanced" if flat.pop("class_weights") == "balanced" else None
        known = {name: flat.pop(name) for name in cls().get_params(deep=False) if name in flat} | own
        others = {name: value for name, value in flat.items() if value != usual[name]}
        estimator = cls(Path(folder) / "encoder", **known, class_weight=weight, options=others or None)
        several, names = bool(model.labels.separator), model.record.labels or model.labels.names
        estimator.classes_ = np.arange(len(model.labels)) if several else np.array(names)
        estimator.model_, estimator.history_ = model, model.record.history
        return estimator

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:  # noqa: N803 (scikit-learn's name)
        text = super().__repr__(N_CHAR_MAX)
        return f"{text}\n{self.model_!r}" if hasattr(self, "model_") else str(text)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if hasattr(self, "model_"):
            bundle["text/html"] = bundle.get("text/html", "") + self.model_._repr_html_()
        return bundle

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


@dataclass(eq=False, repr=False)
class ElmoVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _TextEstimator):  # type: ignore[misc]
    """Turns texts into one vector each: a column of strings in, an array (n_texts, dim) out.

    >>> make_pipeline(ElmoVectorizer("english"), LogisticRegression()).fit(texts, labels)  # doctest: +SKIP

    It learns nothing from the texts. The encoder is opened when it is first needed; where it is given by
    name, pickles and other processes get the name, not the weights.

    Args:
        encoder: A bundled model, a folder that ``elmokit pretrain`` or ``elmokit baseline`` has made, or a
            loaded model.
        pooling: "sentence", the encoder's own sentence vector; or "mean", "max", "last" or "sif" over the
            words, as in ``Embeddings.sentence`` (of word vectors only "mean").
        layer: Pool one layer instead of a mix.
        weights: Weights of the mix; equal by default.
        normalize: Scale vectors to length 1.
    """

    encoder: str | Path | Encoder = DEFAULT
    _: KW_ONLY
    pooling: Pooling | Literal["sentence"] = "sentence"
    layer: int | None = None
    weights: Sequence[float] | None = None
    normalize: bool = False

    def fit(self, X: Texts, y: Any = None) -> ElmoVectorizer:  # noqa: N803 (scikit-learn's name)
        """Check the parameters; there is nothing to learn."""
        check_texts(X)
        self._vectors([])
        return self

    def transform(self, X: Texts) -> FloatArray:  # noqa: N803
        """One vector per text, (n_texts, dim); a text without a word gets zeros."""
        check_texts(X)
        vectors = self._vectors(list(X))
        return normalize(vectors) if self.normalize and len(vectors) else vectors

    def _vectors(self, texts: Sequence[Any]) -> FloatArray:
        encoder, layer, weights = self._encoder, self.layer, self.weights
        if isinstance(encoder, Elmo) and self.pooling != "sentence":
            chunks = chain([encoder.embed([])], encoder.chunks(texts))  # the first checks the parameters
            pooled = [out.sentence(self.pooling, layer=layer, weights=weights) for out in chunks]
            return np.concatenate(pooled)
        if self.pooling not in ("mean", "sentence") or layer is not None or weights is not None:
            raise ConfigError(
                "layer, weights and pooling other than mean apply only to ELMo models.",
                remedy='Leave them out, or choose pooling="mean".',
            )
        return encoder.sentences(texts)

    @property
    def _encoder(self) -> Encoder:
        if not isinstance(self.encoder, str | Path):
            return self.encoder
        if getattr(self, "_opened", (None,))[0] != self.encoder:  # set_params may have changed the name
            self._opened = (self.encoder, load_encoder(self.encoder))
        return self._opened[1]

    @property
    def _n_features_out(self) -> int:
        return int(self._vectors([]).shape[1])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_opened"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


def _read(
    texts: Texts, labels: Texts, classes: npt.NDArray[Any] | None = None
) -> tuple[npt.NDArray[Any], Examples]:
    """The distinct labels (``classes`` if they are known), and the texts with the numbers of their labels."""
    check_texts(texts)
    try:
        given = np.asarray(labels)
        if given.ndim == 2 and given.shape[1] == 1:
            given = column_or_1d(given, warn=True)  # as in scikit-learn
        if any(label is None or label != label for label in given.ravel().tolist()):  # NaN is not itself
            raise ValueError("some are missing")
        names = np.arange(given.shape[1]) if given.ndim == 2 else np.unique(given)
    except (ValueError, TypeError) as error:  # lists of different lengths; types that cannot be sorted
        raise DataError(
            f"Labels must be one per text, of one type and none missing, or a 2-D array of 0 and 1: {error}.",
            remedy="For several labels per text, give ones and zeros, (n_texts, n_classes).",
        ) from error
    if len(texts) != len(given):
        raise DataError(f"There are {len(texts)} texts, but {len(given)} labels.")
    classes, several = names if classes is None else classes, given.ndim == 2
    if several and not (len(names) == len(classes) and np.isin(given, (0, 1)).all()):
        raise DataError("Several labels per text must be given as ones and zeros, (n_texts, n_classes).")
    if unknown := np.setdiff1d(names, classes).tolist():
        raise DataError(f"The validation label {unknown[0]!r} is not among the training labels.")
    if len(classes) < 2 and not several:
        raise DataError(
            f"There is only one class ({classes.tolist()[0]!r})." if len(classes) else "There are no labels.",
            remedy="A classifier needs rows of at least two classes.",
        )
    targets = given.astype(np.float32) if several else np.searchsorted(classes, given)
    own = Labels(tuple(map(str, classes.tolist())), "|" * several)
    return classes, Examples([(text,) for text in texts], targets, own)
