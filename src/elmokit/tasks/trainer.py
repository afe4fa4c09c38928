"""Fit a head to examples with the one training loop: a step, evaluation, unfreezing, row weights."""

from __future__ import annotations

import bisect
import contextlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, DataError
from elmokit.tasks.heads import LinearHead, fit_linear
from elmokit.tasks.layer_cache import LayerSource, cached_sources, number_texts
from elmokit.tasks.model import FitRecord, Network, TaskModel, resolve_head, sentence_dim
from elmokit.tasks.settings import ClassifierConfig, FitConfig
from elmokit.tasks.task import AnyTask, Examples, validation_scores
from elmokit.training.loop import Carry, MetricsLog, StepResult, train
from elmokit.training.machine import tuned_process
from elmokit.vectors.encoder import Encoder, IntArray, Layers

_MOST_EPOCHS = 60  # passes over few rows
_STEPS, _VISITS = 600, 20_000  # to aim at; long texts need visits: a step holds few of them


class TaskTraining:
    """A task, its network and its examples, as the training loop takes them."""

    def __init__(
        self, task: AnyTask, network: Network, parts: Sequence[tuple[Examples, LayerSource]]
    ) -> None:
        self.task, self.network, self.config = task, network, network.config.fit
        self.examples, self.layers = parts[0]
        self.valid = parts[1:]  # one part, or none
        self.module = self.layers.encoder.module
        self._batches, self._epoch = self.layers.batches(self.config.batch_words), 0
        self._weights = row_weights(self.examples, self.config.class_weights)
        names = self.layers.encoder.unfreezing_order() if self.config.finetune else []
        encoder = dict(self.module.named_parameters())
        self._groups = [{f"encoder.{name}": encoder[name] for name in group} for group in names]

    def parameters(self) -> Mapping[str, nn.Parameter]:
        """Those of mix and head that learn, and the encoder's when it is fine-tuned."""
        learned = {name: p for name, p in self.network.named_parameters() if p.requires_grad}
        return learned | {name: p for group in self._groups for name, p in group.items()}

    def lr_scales(self) -> Mapping[str, float]:
        """The encoder's layers learn more slowly, lower ones most slowly."""
        ratio = self.config.encoder_lr / max(self.config.lr, 1e-12)
        decay = self.config.layer_decay
        return {name: ratio * decay**depth for depth, group in enumerate(self._groups) for name in group}

    def steps_per_epoch(self) -> int:
        return len(self._batches)

    def start_epoch(self, epoch: int) -> Carry:
        """Shuffle."""
        self._epoch = epoch
        rng = np.random.default_rng([self.config.seed, epoch])
        self._batches = self.layers.batches(self.config.batch_words, rng)
        return {}

    def step(self, index: int, carry: Carry, rng: torch.Generator) -> StepResult:
        """The loss of one batch."""
        rows, pause = self._batches[index], self.config.unfreeze_every
        epochs_done = self._epoch + index / len(self._batches)
        n_learning = int(epochs_done / pause) if pause else len(self._groups)
        for place, group in enumerate(self._groups):
            for parameter in group.values():
                parameter.requires_grad_(place < n_learning)
        fields = self._batch(rows, rng)
        output, _ = self.network(fields, rng, self.layers.sentence_batch(rows))
        losses = self.task.loss(output, self.examples.targets[rows], smoothing=self.config.label_smoothing)
        loss = (losses * self._weights[torch.from_numpy(rows)]).mean() + self.network.mix.penalty()
        return StepResult(loss, sum(int(layers.mask.sum()) for layers in fields), {})

    def _batch(self, rows: IntArray, rng: torch.Generator) -> list[Layers]:
        """The layers of some rows; those of a frozen encoder with some words blanked."""
        if self.config.finetune:
            return self.layers.batch(rows, dropout=self.config, rng=rng)
        with torch.no_grad():
            fields = self.layers.batch(rows)
        keep = 1.0 - self.config.dropout_word
        for place, layers in enumerate(fields if keep < 1 else ()):
            mask = torch.empty(*layers.mask.shape, 1).bernoulli_(keep, generator=rng).div_(keep)
            fields[place] = replace(layers, values=tuple(layer * mask for layer in layers.values))
        return fields

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Main score and loss on the validation rows, and the weight of each layer; nothing without rows."""
        if not self.valid:
            return {}
        (examples, source), task, predictions = self.valid[0], self.task, dict[int, Any]()
        losses = torch.zeros(len(examples))
        for rows, fields in source.all():
            output, masks = self.network(fields, None, source.sentence_batch(rows))
            losses[torch.from_numpy(rows)] = task.loss(output, examples.targets[rows])
            predictions |= zip(rows.tolist(), task.decode(output, masks, examples.labels), strict=True)
        answers = [predictions[row] for row in range(len(examples))]
        return validation_scores(task, examples, answers, losses) | self.network.mix.values()


def row_weights(examples: Examples, class_weights: Literal["equal", "balanced"]) -> Tensor:
    """The weight of each row, (n,): as given, times that of its class; 1 on average."""
    targets = examples.targets
    weights = np.ones(len(examples)) if examples.weights is None else examples.weights.astype(float)
    if class_weights == "balanced":
        if not is_single_label(targets):
            raise ConfigError(
                "class_weights = 'balanced' requires exactly one label per row.",
                remedy="Leave it out, or weigh the rows themselves (sample_weight).",
            )
        counts = np.bincount(targets, weights=weights, minlength=len(examples.labels))
        weights = weights / np.maximum(counts, 1e-12)[targets]
    if not weights.sum() > 0:
        raise DataError("All training rows have a weight of zero.", remedy="Give some rows more weight.")
    return torch.from_numpy((weights / weights.mean()).astype(np.float32))


def is_single_label(targets: npt.NDArray[Any]) -> bool:
    """Whether each row has one class number."""
    return targets.ndim == 1 and targets.dtype.kind == "i"


def fit_task(
    task: AnyTask,
    encoder: Encoder,
    train_examples: Examples,
    valid_examples: Examples | None,
    config: ClassifierConfig,
    *,
    run: Path | None = None,
    layers_folder: Path | None = None,
    checkpoint_every: float = 60.0,
    reporter: Reporter | None = None,
) -> TaskModel:
    """Fit a head on top of ``encoder``; ``record.stopped`` of the model says how it ended.

    Args:
        encoder: It stays as it is; fine-tuning works on a copy.
        valid_examples: To choose the best weights by. None takes the last weights, which is right where
            labels are too few to hold any out.
        run: Folder for checkpoints and metrics, to resume from; temporary unless given.
        layers_folder: Where a frozen encoder's layers stay for further fits with the same encoder and
            texts; otherwise they are deleted at the end.
    """
    reporter, seconds = reporter or Reporter("silent"), dict[str, float]()
    config, labels = resolve_head(task, config), train_examples.labels
    parts = [train_examples] if valid_examples is None else [train_examples, valid_examples]
    counting = reporter.counting("Reading words", total=sum(map(len, parts)), unit="texts")
    n_sentence, limit = sentence_dim(task, config, encoder), config.fit.max_words
    with timed(seconds, "numbering"), counting as advance:
        sources = [
            number_texts(encoder, part.inputs, limit, advance, with_sentences=n_sentence > 0)
            for part in parts
        ]
    record = FitRecord(stopped="done", notes=_check_texts(sources, config.fit), timings=seconds)
    # Looking up word vectors is as fast as reading a cache.
    is_slow = encoder.directional and config.fit.epochs != 1
    caches = config.fit.cache == "yes" or (config.fit.cache == "auto" and is_slow)
    if issubclass(task.heads[config.head.head], LinearHead):
        with timed(seconds, "training"), tuned_process():
            if layers_folder is not None and caches:
                sources = cached_sources(sources, layers_folder, reporter, compute=False)
            weights = row_weights(train_examples, config.fit.class_weights)
            network, history = fit_linear(task, parts, sources, config, weights, reporter)
        record = replace(record, history=history, mix_start=network.mix.values())
        return TaskModel(task, encoder, network.eval(), labels, record)
    config = _with_epochs(config, sources[0], task.min_epochs)
    if config.fit.finetune:
        encoder = encoder.copy()
        sources = [replace(source, encoder=encoder) for source in sources]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.fit.seed)
        shape = (encoder.n_layers, encoder.dim)
        options: Any = {"directional": encoder.directional, "sentence_dim": n_sentence}
        network = Network(task, config, *shape, labels, **options)
    record = replace(record, mix_start=network.mix.values())
    with contextlib.ExitStack() as stack:
        if run is None:
            run = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elmokit-")))
            checkpoint_every = 1e9
        if caches and not config.fit.finetune:
            with timed(seconds, "encoding"), tuned_process():
                sources = cached_sources(sources, layers_folder or run, reporter)
        training = TaskTraining(task, network, list(zip(parts, sources, strict=True)))
        result = train(training, config.fit, run, reporter=reporter, checkpoint_every=checkpoint_every)
        history = _with_train_loss(run / "metrics.jsonl", result.position.history)
        if layers_folder is None and result.stopped != "interrupted":
            for file in run.glob("*layers-*"):  # those of a run that was killed, too
                file.unlink(missing_ok=True)
    seconds["training"] = round(result.position.seconds, 2)
    with torch.no_grad():
        for name, parameter in training.parameters().items():
            parameter.copy_(result.weights[name])
    if config.fit.finetune:
        encoder = encoder.copy()  # without word vectors of earlier weights
    record = replace(record, stopped=result.stopped, history=history)
    return TaskModel(task, encoder, network.eval(), labels, record)


def _with_train_loss(metrics: Path, history: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """The history with each evaluation's mean training loss since the one before."""
    steps, losses = [entry["step"] for entry in history], defaultdict[int, list[float]](list)
    for step, loss in MetricsLog.losses(metrics):
        losses[bisect.bisect_left(steps, step)].append(loss)
    means = {place: {"train_loss": float(np.mean(values))} for place, values in losses.items()}
    return [{**entry, **means.get(place, {})} for place, entry in enumerate(history)]


def _check_texts(texts: Sequence[LayerSource], fit: FitConfig) -> tuple[str, ...]:
    """Refuse texts that nothing can be learned from; notes on cut and empty ones."""
    if not len(texts[-1]):
        raise DataError(
            "There are no rows for validation.",
            remedy="Give such rows, or at least two rows of a class, so that one can be held out.",
        )
    if texts[0].n_empty == len(texts[0]):
        raise DataError("None of the training texts contains a word.", remedy="Check the texts first.")
    counts = {
        f"Truncated to {fit.max_words} words (max_words)": sum(part.n_cut for part in texts),
        "Without words": sum(part.n_empty for part in texts),
    }
    whole = f"{sum(map(len, texts)):,} rows for training" + (" and validation" if len(texts) > 1 else "")
    return tuple(f"{what}: {n:,} of {whole}." for what, n in counts.items() if n)


def _with_epochs(config: ClassifierConfig, texts: LayerSource, at_least: int) -> ClassifierConfig:
    """The settings with a number of epochs that suits the texts, unless one is given."""
    fit = config.fit
    if not fit.epochs:
        n_steps = len(texts.batches(fit.batch_words))
        epochs = max(at_least, -(-_STEPS // n_steps), -(-_VISITS // len(texts)))
        fit = replace(fit, epochs=min(_MOST_EPOCHS, epochs))
    if fit.finetune and fit.unfreeze_every >= fit.epochs:
        raise ConfigError(
            f"With unfreeze_every = {fit.unfreeze_every:g}, no encoder layer would learn in "
            f"{fit.epochs} epochs.",
            remedy="Lower unfreeze_every (0 unfreezes all layers at once), or raise epochs.",
        )
    return replace(config, fit=fit)


@contextlib.contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Put the time spent inside into ``seconds[name]``."""
    start = time.monotonic()
    yield
    seconds[name] = round(time.monotonic() - start, 2)
