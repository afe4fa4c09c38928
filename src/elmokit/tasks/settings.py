"""Settings of a fit, apart from the networks so that help imports no library."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from elmokit.core.config import Config, DropoutConfig, RunConfig, merge_settings, option
from elmokit.vectors.settings import MixConfig

_STACK_SETTINGS = ("max_words", "class_weights", "valid_share", "seed", "cache")


@dataclass(frozen=True, kw_only=True)
class HeadConfig(Config):
    """The layers on top of the mixed vectors."""

    head: str = option(
        "auto",
        "classify: auto (logistic regressions on vectors, words and characters; pool if you set the mix or a "
        "training option), pool (pooling over the words and a hidden layer), bilstm (two-layer biLSTM), or "
        "linear (logistic regression on the mean vector). tag: bilstm or linear, both with a CRF. "
        "answer: bidaf. pair: siamese or align. auto takes the first of its task.",
    )
    head_dim: int = option(128, "Width of the hidden layer, or of the biLSTM in each direction.", at_least=1)
    head_layers: int = option(2, "Layers of the biLSTM.", at_least=1, at_most=8)
    dropout_head: float = option(
        0.2, "Dropout on the input of the head and of its layers.", at_least=0, at_most=0.95
    )
    pool_edges: bool = option(False, "Read <s> and </s> as words, as version 0.1 did.")


@dataclass(frozen=True, kw_only=True)
class FitConfig(DropoutConfig, RunConfig):
    """How a classifier is trained."""

    finetune: bool = option(False, "Train the encoder too, not only the mix and the head.")
    epochs: int = option(
        0,
        "Passes over the rows (0: at least five, and enough for 600 steps and 20,000 rows seen).",
        at_least=0,
    )
    batch_words: int = option(2048, "Words per step; texts of similar length are read together.", at_least=1)
    max_words: int = option(400, "Texts are cut to this many words.", at_least=1)
    lr: float = option(2e-3, "Highest learning rate of mix and head.", at_least=0, at_most=1000)
    encoder_lr: float = option(1e-3, "Highest learning rate of a fine-tuned encoder's top layer.", at_least=0)
    layer_decay: float = option(
        0.8,
        "Fine-tuning: each encoder layer learns this much slower than the one above.",
        at_least=0.01,
        at_most=1,
    )
    unfreeze_every: float = option(
        0.1,
        "Fine-tuning: epochs until the next encoder layer starts to learn, top first (0: all at once).",
        at_least=0,
    )
    weight_decay: float = option(0.01, "Weight decay, on densely updated matrices.", at_least=0)
    warmup: float = option(0.1, "Share of all steps used for warm-up.", at_least=0, at_most=1)
    ema: float = option(
        0.998, "Keep a moving average of the weights with this decay (0: off).", at_least=0, at_most=0.99999
    )
    label_smoothing: float = option(0.0, "Share of the target given to all classes.", at_least=0, at_most=0.9)
    l2: float = option(
        2.0,
        "Linear head: L2 penalty (half the squared weights, added to the mean loss); with validation rows, "
        "smaller values are tried, too.",
        at_least=0,
    )
    class_weights: Literal["equal", "balanced"] = option(
        "equal", "Give every row, or every class, the same weight."
    )
    dropout_word: float = option(0.05, "Probability of dropping a word.", at_least=0, at_most=0.95)
    dropout_input: float = option(0.1, "Fine-tuning: dropout on word vectors.", at_least=0, at_most=0.95)
    dropout_layer: float = option(0.1, "Fine-tuning: dropout between layers.", at_least=0, at_most=0.95)
    dropout_weight: float = option(
        0.0, "Fine-tuning: dropout on recurrent weights.", at_least=0, at_most=0.95
    )
    valid_share: float = option(
        0.1, "Share of rows held out for validation when no --valid is given.", at_least=0.001, at_most=0.5
    )
    cache: Literal["auto", "yes", "no"] = option(
        "auto", "Keep a frozen encoder's layers on disk between epochs, if they fit (auto: if it saves time)."
    )


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(Config):
    """Everything that decides what ``fit`` makes of some rows."""

    mix: MixConfig = MixConfig()  # noqa: RUF009 (frozen)
    head: HeadConfig = HeadConfig()
    fit: FitConfig = FitConfig()

    @classmethod
    def from_flat(cls, **values: Any) -> ClassifierConfig:
        """From settings by name, whichever section they belong to."""
        (config,) = merge_settings(values, config=cls()).values()
        return cast(ClassifierConfig, config)

    @property
    def is_stack(self) -> bool:
        """True if "auto" means the stack: nothing is set that only a trained head has."""
        usual = ClassifierConfig()
        shared = {name: getattr(self.fit, name) for name in _STACK_SETTINGS}
        return self == replace(usual, fit=replace(usual.fit, **shared))

    def to_flat(self) -> dict[str, Any]:
        """All settings by name."""
        return {**self.mix.to_dict(), **self.head.to_dict(), **self.fit.to_dict()}
