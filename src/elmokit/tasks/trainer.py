"""Fitting a text classifier, by the one training loop."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.core.atomic import explain_os_errors
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError
from elmokit.core.tensors import fingerprint, load_tensors
from elmokit.static.word_vectors import WordVectors
from elmokit.tasks.encoders import Encoder
from elmokit.tasks.layer_cache import (
    Batch,
    Examples,
    KeptLayers,
    keep_layers,
    layers_of,
    number_texts,
)
from elmokit.tasks.linear_fit import fit_linear
from elmokit.tasks.model import PREDICT_WORDS, Network, Targets, TextClassifier
from elmokit.tasks.row_weights import row_weights
from elmokit.tasks.settings import ClassifierConfig, FitConfig
from elmokit.text.tokenizing import Text
from elmokit.training.loop import Carry, StepResult, Stopped, train
from elmokit.training.machine import tuned_process
from elmokit.vectors.mix import Mix

__all__ = ["Classification", "FitResult", "fit_classifier", "keep_all_layers"]

Doubles = npt.NDArray[np.float64]
_EPOCHS, _MOST_EPOCHS, _STEPS = 5, 60, 600  # passes over many rows, over few, and steps to aim at


class Classification:
    """Classification as a task for the training loop."""

    def __init__(
        self,
        encoder: Encoder,
        network: Network,
        train: tuple[Examples, Targets],
        valid: tuple[Examples, Targets],
        kept: tuple[KeptLayers, KeptLayers] | None,
    ) -> None:
        self.encoder, self.network = encoder, network
        self.config: FitConfig = network.config.fit
        self.examples, self.targets = train
        self.valid_examples, self.valid_targets = valid
        self.kept = kept
        self.is_mixed = kept is not None and kept[0].is_mixed
        self._batches = self.examples.batches(self.config.batch_words)
        self._epoch = 0
        self._weights = row_weights(self.targets, self.config.class_weights)
        self._groups = encoder.unfreezing_order() if self.config.finetune else []

    def parameters(self) -> Mapping[str, nn.Parameter]:
        """Those of mix and head that learn, and the encoder's when it is fine-tuned."""
        own = dict(self.network.named_parameters())
        found = {name: parameter for name, parameter in own.items() if parameter.requires_grad}
        theirs = dict(self.encoder.module.named_parameters())
        return found | {f"encoder.{name}": theirs[name] for group in self._groups for name in group}

    def lr_scales(self) -> Mapping[str, float]:
        """The encoder's layers learn more slowly, the lower the slower."""
        ratio = self.config.encoder_lr / max(self.config.lr, 1e-12)
        return {
            f"encoder.{name}": ratio * self.config.layer_decay**depth
            for depth, group in enumerate(self._groups)
            for name in group
        }

    def steps_per_epoch(self) -> int:
        """Batches in a pass over the texts."""
        return len(self._batches)

    def start_epoch(self, epoch: int) -> Carry:
        """Shuffle; nothing is carried from step to step."""
        self._epoch = epoch
        self._batches = self.examples.batches(
            self.config.batch_words, np.random.default_rng([self.config.seed, epoch])
        )
        return {}

    def step(self, index: int, carry: Carry, rng: torch.Generator) -> StepResult:
        """The loss of one batch."""
        rows = self._batches[index]
        self._thaw(index)
        batch = self._batch(rows, rng)
        scores = self.network(batch, rng, is_mixed=self.is_mixed)
        loss = self._loss(scores, rows) + self.network.mix.penalty()
        return StepResult(loss, int(batch.mask.sum()), {})

    def _thaw(self, index: int) -> None:
        """Let the layers learn that are due by now."""
        if not self._groups:
            return
        done = self._epoch + index / len(self._batches)
        n_thawed = len(self._groups) if self.config.thaw == 0 else int(done / self.config.thaw)
        parameters = dict(self.encoder.module.named_parameters())
        for place, group in enumerate(self._groups):
            for name in group:
                parameters[name].requires_grad_(place < n_thawed)

    def _batch(self, rows: npt.NDArray[np.int64], rng: torch.Generator | None) -> Batch:
        if self.kept is not None:
            batch = self.kept[0].batch(rows)
        else:
            with torch.set_grad_enabled(bool(self._groups)):
                layers = self.encoder.layers(
                    self.examples.ids, rows, dropout=self.config, rng=rng if self._groups else None
                )
            batch = Batch(layers.values, layers.mask)
        if self.config.dropout_word and rng is not None and not self.config.finetune:
            keep = 1.0 - self.config.dropout_word
            mask = torch.empty(*batch.mask.shape, 1).bernoulli_(keep, generator=rng).div_(keep)
            batch = Batch(tuple(layer * mask for layer in batch.layers), batch.mask)
        return batch

    def _loss(self, scores: Tensor, rows: npt.NDArray[np.int64]) -> Tensor:
        wanted = torch.from_numpy(self.targets.values[rows])
        losses = _losses(scores, wanted, self.config.label_smoothing)
        return (losses * self._weights[torch.from_numpy(rows)]).mean()

    def evaluate(self) -> dict[str, float]:
        """Accuracy and loss on the validation rows, and how much each layer counts; nothing if there are
        none."""
        examples, targets = self.valid_examples, self.valid_targets
        if not len(examples):
            return {}
        scores = torch.zeros(len(examples), len(targets.classes))
        with torch.no_grad():
            for rows, batch in self._valid_batches():
                scores[torch.from_numpy(rows)] = self.network(batch, is_mixed=self.is_mixed)
        wanted = torch.from_numpy(targets.values)
        loss = float(_losses(scores, wanted, 0.0).mean())
        figures = {}
        if targets.multilabel:
            guessed, there = scores > 0, wanted > 0.5  # (n_texts, n_classes)
            accuracy = float((guessed == there).all(dim=1).double().mean())
            n_both = float((guessed & there).sum())
            decisive = 2 * n_both / max(1.0, float(guessed.sum() + there.sum()))
            figures["micro_f1"] = decisive
        else:
            decisive = accuracy = float((scores.argmax(dim=1) == wanted).double().mean())
        # Accuracy decides (of several labels, micro F1), the loss breaks ties.
        return {
            "score": 1.0 - decisive + 1e-6 * loss,
            "accuracy": accuracy,
            **figures,
            "valid_loss": loss,
            **self.network.mix.values(),
        }

    def _valid_batches(self) -> Iterator[tuple[npt.NDArray[np.int64], Batch]]:
        if self.kept is not None:
            for rows in self.valid_examples.batches(PREDICT_WORDS):
                yield rows, self.kept[1].batch(rows)
            return
        yield from layers_of(self.encoder, self.valid_examples, PREDICT_WORDS)


def _losses(scores: Tensor, wanted: Tensor, smoothing: float) -> Tensor:
    """The loss of each text, (batch,)."""
    if wanted.ndim == 1:
        return F.cross_entropy(scores, wanted, reduction="none", label_smoothing=smoothing)
    soft = wanted.float() * (1 - smoothing) + smoothing / 2
    return F.binary_cross_entropy_with_logits(scores, soft, reduction="none").mean(dim=1)


@dataclass(frozen=True)
class FitResult:
    """How fitting went.

    Attributes:
        classifier: what was made, with the weights that were best on validation rows.
        stopped: "done", "early", "time" or "interrupted".
        history: figures of each evaluation.
        seconds: ``numbering``, ``encoding`` and ``training``.
        notes: what a person should know, such as texts that were cut.
        mix_start: how much each layer counted before training.
        was_done: the run had ended before; nothing was done now.
    """

    classifier: TextClassifier
    stopped: Stopped
    history: list[dict[str, float]]
    seconds: dict[str, float]
    notes: list[str]
    mix_start: dict[str, float]
    was_done: bool = False


def fit_classifier(
    encoder: Encoder,
    train_rows: tuple[Sequence[Text], Targets],
    valid_rows: tuple[Sequence[Text], Targets] | None,
    config: ClassifierConfig,
    *,
    run: Path | None = None,
    layers_folder: Path | None = None,
    checkpoint_every: float = 60.0,
    reporter: Reporter | None = None,
) -> FitResult:
    """Fit a classifier on top of ``encoder``.

    Args:
        encoder: it stays as it is, fine-tuning works on a copy.
        train_rows: texts and what they are.
        valid_rows: texts and what they are, to choose the best weights by; None: the last weights count,
            which is right where labels are too few to set any aside.
        config: all settings.
        run: a folder for checkpoints and metrics, to go on from; temporary unless given.
        layers_folder: where a frozen encoder's layers are kept for further fits with the same encoder
            and texts; otherwise they are deleted at the end.
        checkpoint_every: seconds between checkpoints.
        reporter: who is told; silent unless given.
    """
    reporter = reporter or Reporter("silent")
    if run is None:
        with tempfile.TemporaryDirectory(prefix="elmokit-") as folder:
            return _fit(encoder, train_rows, valid_rows, config, Path(folder), layers_folder, 1e9, reporter)
    return _fit(encoder, train_rows, valid_rows, config, run, layers_folder, checkpoint_every, reporter)


def _fit(
    encoder: Encoder,
    train_rows: tuple[Sequence[Text], Targets],
    valid_rows: tuple[Sequence[Text], Targets] | None,
    config: ClassifierConfig,
    run: Path,
    layers_folder: Path | None,
    checkpoint_every: float,
    reporter: Reporter,
) -> FitResult:
    seconds: dict[str, float] = {}
    fit = config.fit
    classes = train_rows[1].classes
    chooses = valid_rows is not None
    if valid_rows is None:
        valid_rows = [], Targets(classes, train_rows[1].values[:0])
    with (
        timed(seconds, "numbering"),
        reporter.counting(
            "Reading words", total=len(train_rows[0]) + len(valid_rows[0]), unit="texts"
        ) as advance,
    ):
        examples = [
            number_texts(encoder, texts, fit.max_words, advance) for texts, _ in (train_rows, valid_rows)
        ]
    notes = _notes(examples, fit)
    if not len(examples[0]):
        raise DataError("There are no rows to train on.", remedy="Give a file with labelled texts.")
    if chooses and not len(examples[1]):
        raise DataError(
            "There are no rows for validation.",
            remedy="Give validation rows, or two rows or more of a class, so that one can be set aside.",
        )
    if examples[0].n_empty == len(examples[0]):
        raise DataError("None of the texts to train on holds a word.", remedy="Look at the texts first.")
    if config.head.head == "linear":
        rows = [(part, found[1]) for part, found in zip(examples, (train_rows, valid_rows), strict=True)]
        shared = None
        if layers_folder is not None and _worth_keeping(encoder, fit):
            files = _shared_files(encoder, examples, layers_folder)
            if all(file.exists() for file in files):
                shared = _kept_in(encoder, examples, files, None, config, reporter)
        with timed(seconds, "training"), tuned_process():
            found, history = fit_linear(
                encoder, rows[0], rows[1] if chooses else None, config, shared, reporter
            )
        classifier = TextClassifier(encoder, found, classes, train_rows[1].multilabel)
        return FitResult(classifier, "done", history, seconds, notes, found.mix.values())
    if not fit.epochs:
        n_steps = len(examples[0].batches(fit.batch_words))
        fit = replace(fit, epochs=min(_MOST_EPOCHS, max(_EPOCHS, -(-_STEPS // n_steps))))
        config = replace(config, fit=fit)
    if fit.finetune and fit.thaw >= fit.epochs:
        raise ConfigError(
            f"With thaw = {fit.thaw:g} nothing of the encoder would learn in {fit.epochs} epochs.",
            remedy="Lower thaw (0 thaws all layers at once), or raise epochs.",
        )
    if fit.finetune:
        encoder = encoder.copy()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fit.seed)
        network = Network(config, encoder.n_layers, encoder.dim, len(classes))
    mix_start = network.mix.values()
    kept = None
    done = (run / "checkpoint.safetensors").exists() and _is_done(run)
    with timed(seconds, "encoding"), tuned_process():
        if not done and not fit.finetune and _worth_keeping(encoder, fit):
            kept = _keep(encoder, examples, network, run, layers_folder, reporter)
    task = Classification(encoder, network, (examples[0], train_rows[1]), (examples[1], valid_rows[1]), kept)
    with timed(seconds, "training"):
        result = train(task, fit, run, reporter=reporter, checkpoint_every=checkpoint_every)
    seconds["training"] = round(result.position.seconds, 2)
    parameters = task.parameters()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(result.weights[name])
    if fit.finetune:
        for parameter in encoder.module.parameters():
            parameter.requires_grad_(True)
    if layers_folder is None and result.stopped != "interrupted":
        for part in kept or ():
            part.discard()
        for file in run.glob("*layers-*.npy*"):  # of a run that was killed
            file.unlink(missing_ok=True)
    network.eval()
    classifier = TextClassifier(encoder, network, classes, train_rows[1].multilabel)
    history = result.position.history
    return FitResult(classifier, result.stopped, history, seconds, notes, mix_start, result.was_done)


def _keep(
    encoder: Encoder,
    examples: Sequence[Examples],
    network: Network,
    run: Path,
    layers_folder: Path | None,
    reporter: Reporter,
) -> tuple[KeptLayers, KeptLayers] | None:
    never_changes = network.config.mix.mix == "frozen"
    mix = network.mix if never_changes and layers_folder is None else None
    files = [run / f"layers-{name}.npy" for name in ("train", "valid")]
    if layers_folder is not None:
        files = _shared_files(encoder, examples, layers_folder)
    return _kept_in(encoder, examples, files, mix, network.config, reporter)


def _kept_in(
    encoder: Encoder,
    examples: Sequence[Examples],
    files: Sequence[Path],
    mix: Mix | None,
    config: ClassifierConfig,
    reporter: Reporter,
) -> tuple[KeptLayers, KeptLayers] | None:
    kept = []
    must_fit = config.fit.cache == "yes"
    with reporter.counting("Computing layers", total=sum(map(len, examples)), unit="texts") as advance:
        for file, part in zip(files, examples, strict=True):
            found = keep_layers(encoder, part, file, mix, PREDICT_WORDS, advance, must_fit=must_fit)
            if found is None:
                reporter.say("[yellow]The disk has no room for the layers: each epoch computes them anew.[/]")
                return None
            kept.append(found)
    return kept[0], kept[1]


def _shared_files(encoder: Encoder, examples: Sequence[Examples], folder: Path) -> list[Path]:
    mark = fingerprint(*encoder.module.parameters())
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return [folder / f"layers-{part.ids.content_hash(mark)}.npy" for part in examples]


def keep_all_layers(
    encoder: Encoder, texts: Sequence[Sequence[Text]], config: ClassifierConfig, folder: Path
) -> list[Path]:
    """Compute a frozen encoder's layers for some lists of texts, where ``fit_classifier`` will find them in
    ``layers_folder``; the files, or none of them if the disk has no room."""
    examples = [number_texts(encoder, part, config.fit.max_words) for part in texts]
    if config.fit.cache == "no":
        return []
    files = _shared_files(encoder, examples, folder)
    must_fit = config.fit.cache == "yes"
    with tuned_process():
        for part, file in zip(examples, files, strict=True):
            if not keep_layers(encoder, part, file, None, PREDICT_WORDS, lambda n: None, must_fit=must_fit):
                return []
    return files


def _worth_keeping(encoder: Encoder, fit: FitConfig) -> bool:
    """Whether layers are to be kept on disk: looking word vectors up is as quick as reading them."""
    quick = isinstance(encoder, WordVectors) or fit.epochs == 1
    return fit.cache == "yes" or (fit.cache == "auto" and not quick)


def _is_done(run: Path) -> bool:
    return load_tensors(run / "checkpoint.safetensors")[1].get("stopped") is not None


def _notes(examples: list[Examples], fit: FitConfig) -> list[str]:
    notes = []
    if n_cut := sum(part.n_cut for part in examples):
        some = "1 text is" if n_cut == 1 else f"{n_cut:,} texts are"
        notes.append(f"{some} longer than {fit.max_words} words: only the start was read (max_words).")
    if n_empty := sum(part.n_empty for part in examples):
        some = "1 text holds" if n_empty == 1 else f"{n_empty:,} texts hold"
        notes.append(f"{some} no word: kept, but told apart by nothing.")
    return notes


@contextlib.contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Put the time spent inside into ``seconds[name]``."""
    begun = time.monotonic()
    yield
    seconds[name] = round(time.monotonic() - begun, 2)
