"""From raw text to a trained biLM folder."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import elmokit
from elmokit.bilm.folder import BilmFolder, load_bilm, save_bilm
from elmokit.bilm.model import Bilm
from elmokit.bilm.perplexity import perplexity, stream_batch
from elmokit.bilm.settings import PretrainConfig, TrainingConfig
from elmokit.bilm.state import BilmState, average_state
from elmokit.core.atomic import write_text
from elmokit.core.console import Reporter
from elmokit.core.model_folder import is_model_folder
from elmokit.core.run_folder import open_out
from elmokit.core.tensors import fingerprint
from elmokit.text.batching import Lanes
from elmokit.text.corpus import Corpus, CorpusSettings, prepare_corpus
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig
from elmokit.text.tokenizing import BOS, EOS, UNK, TextPipeline, load_tokenizer, replace_surrogates
from elmokit.text.vocabulary import learn_bpe, learn_morphemes, require_morfessor
from elmokit.training.loop import Carry, StepResult, Stopped, TrainingResult, train

__all__ = ["LanguageModeling", "PretrainResult", "pretrain"]

_HELD_OUT_WORDS = 100_000


@dataclass(frozen=True)
class PretrainResult:
    """What ``pretrain`` leaves behind.

    Attributes:
        folder: where the model is.
        stopped: "done", "early", "time" or "interrupted".
        held_out: exact held-out perplexity (``perplexity``, ``forward``, ``backward``), or None.
        n_steps: steps done.
        n_words: words read, over all epochs.
        seconds: time spent in training, over all starts.
        was_done: the run had ended before; nothing was done now.
    """

    folder: Path
    stopped: Stopped
    held_out: dict[str, float] | None
    n_steps: int
    n_words: int
    seconds: float
    was_done: bool = False


class LanguageModeling:
    """Language modelling over lanes of running text, as a task for the training loop."""

    def __init__(self, model: Bilm, corpus: Corpus, saved: BilmFolder, config: TrainingConfig) -> None:
        self.model, self.corpus, self.config = model, corpus, config
        self.features = saved.features.rows(corpus.words)
        # A given validation text is measured whole; of a held-out share, enough for a steady figure.
        self.valid = corpus.valid if corpus.has_valid else corpus.valid.spread(_HELD_OUT_WORDS)
        n_tokens = corpus.train.n_tokens
        self.n_lanes = max(1, min(config.n_lanes, n_tokens // max(2, config.window)))
        self._lanes = self._order(0)

    def _order(self, epoch: int) -> Lanes:
        rng = np.random.default_rng([self.config.seed, epoch])
        order = rng.permutation(len(self.corpus.train))
        return Lanes(self.corpus.train, self.n_lanes, self.config.window, order)

    def parameters(self) -> Mapping[str, nn.Parameter]:
        """All of the model's."""
        return dict(self.model.named_parameters())

    def lr_scales(self) -> Mapping[str, float]:
        """One learning rate for all."""
        return {}

    def steps_per_epoch(self) -> int:
        """Windows in a pass over the text."""
        return len(self._lanes)

    def start_epoch(self, epoch: int) -> Carry:
        """Shuffle the documents; every lane starts from zero."""
        self._lanes = self._order(epoch)
        return self.model.zero_state(self._lanes.n_lanes).tensors()

    def step(self, index: int, carry: Carry, rng: torch.Generator) -> StepResult:
        """Both directions' loss over one window."""
        self.model.train()
        batch = stream_batch(self._lanes.window(index), self.features, self.model.n_words)
        state = BilmState.from_tensors(carry).rows(batch.forward_index.shape[1])
        ahead, behind, state = self.model.stream(
            batch.features, batch.forward_index, batch.backward_index, state, self.config, rng
        )
        hidden = torch.cat(
            [
                ahead.flatten(0, 1).index_select(0, batch.forward_kept),
                behind.flatten(0, 1).index_select(0, batch.backward_kept),
            ]
        )
        targets = torch.cat([batch.forward_targets, batch.backward_targets])
        loss = self.model.predictor.training_loss(hidden, targets, rng) / max(1, len(targets))
        kept = state.rows(state.forward[0][0].shape[0]).tensors()
        n_words = (len(batch.forward_targets) + len(batch.backward_targets)) // 2
        return StepResult(loss, n_words, kept)

    def evaluate(self) -> dict[str, float]:
        """Exact perplexity of the held-out text."""
        if self.valid.n_tokens == 0:
            return {}
        found = perplexity(self.model, self.valid, self.features)
        return {
            "score": found.perplexity,
            "perplexity": found.perplexity,
            "forward": found.forward,
            "backward": found.backward,
        }


def pretrain(
    texts: Sequence[str | Path],
    out: str | Path,
    config: PretrainConfig | None = None,
    *,
    read: ReadConfig | None = None,
    valid: Sequence[str | Path] = (),
    start_from: str | Path | None = None,
    corpus_folder: str | Path | None = None,
    checkpoint_every: float = 60.0,
    tensorboard: bool = False,
    reporter: Reporter | None = None,
    command: str = "",
) -> PretrainResult:
    """Train a bidirectional language model on raw text.

    Called again with the same arguments, it goes on where it was stopped, and ends with the same
    bits as if it had not been.

    Args:
        texts: files, folders, glob patterns, or ``-`` for standard input.
        out: the model folder to make; its ``run`` folder holds checkpoints and metrics.
        config: all settings; ``elmokit.core.config.resolve("small")`` and the like make one.
        read: how the files are read.
        valid: text to measure perplexity on; without it a share of ``texts`` is held out.
        start_from: a model folder to train further; its words and shape stay as they are.
        corpus_folder: where the prepared text lives, to share it between runs.
        checkpoint_every: seconds between checkpoints.
        tensorboard: write TensorBoard files into the run folder.
        reporter: who is told; silent unless given.
        command: the command line, for the model card.
    """
    config, reporter = config or PretrainConfig(), reporter or Reporter("silent")
    out = Path(out)
    base = load_bilm(start_from) if start_from is not None else None
    if base is not None:
        config = _continued(config, base)
    if config.model.input == "morpheme" and base is None:
        require_morfessor()
    folder = open_out(out, "bilm", resume=True)
    run = folder.run
    with folder.lock():
        train_text = TextSource(texts, read, exclude=out)
        valid_text = TextSource(valid, read, exclude=out) if valid else None
        corpus = _corpus(run, corpus_folder, config, base, train_text, valid_text, reporter)
        weights = fingerprint(*base.model.parameters()) if base else None
        inputs = {"corpus.content_hash": corpus.content_hash, "start_from.weights": weights}
        folder.require_same(config.to_dict(), inputs)
        _describe(corpus, reporter)

        saved = _build(config, corpus, base, run, reporter)
        task = LanguageModeling(saved.model, corpus, saved, config.training)
        if task.n_lanes < config.training.n_lanes:
            reporter.say(
                f"[yellow]The text is short: {task.n_lanes} lanes instead of {config.training.n_lanes}.[/]"
            )
        if corpus.valid.n_tokens == 0:
            reporter.say("[yellow]Nothing is held out, so no perplexity is measured; give --valid FILE.[/]")
        n_parameters = sum(parameter.numel() for parameter in saved.model.parameters())
        reporter.say(
            f"Model: {config.model.input} input, {config.model.n_layers}+{config.model.n_layers} LSTM "
            f"layers, {2 * config.model.dim} wide, {n_parameters:,} parameters."
        )
        result = train(
            task,
            config.training,
            run,
            reporter=reporter,
            checkpoint_every=checkpoint_every,
            tensorboard=tensorboard,
        )
        with torch.no_grad():
            for name, parameter in saved.model.named_parameters():
                parameter.copy_(result.weights[name])
        saved.model.eval()
        held_out = _held_out(result)
        if not (result.was_done and is_model_folder(out)):
            saved.training.update(_provenance(config, corpus, train_text, result, held_out, command))
            start_state = average_state(saved.model, corpus.train, task.features)
            save_bilm(out, replace(saved, start_state=start_state))
        return PretrainResult(
            out,
            result.stopped,
            held_out,
            result.position.step,
            result.position.n_words,
            result.position.seconds,
            result.was_done,
        )


def _continued(config: PretrainConfig, base: BilmFolder) -> PretrainConfig:
    """Settings for training ``base`` further: its shape and text pipeline, the new schedule."""
    return PretrainConfig(
        text=base.text,
        vocabulary=config.vocabulary,
        model=base.model.config,
        training=config.training,
    )


def _corpus(
    run: Path,
    folder: str | Path | None,
    config: PretrainConfig,
    base: BilmFolder | None,
    train_text: TextSource,
    valid_text: TextSource | None,
    reporter: Reporter,
) -> Corpus:
    settings = CorpusSettings(
        text=config.text,
        vocabulary=config.vocabulary,
        open_words=config.model.input != "word",
        held_out=config.training.held_out,
        fixed=tuple(base.vocabulary.words) if base else (),
    )
    with reporter.counting("Preparing the text", unit="characters") as advance:
        return prepare_corpus(
            Path(folder) if folder else run / "corpus",
            settings,
            train_text,
            valid_text,
            progress=lambda phase, amount: advance(amount),
        )


def _describe(corpus: Corpus, reporter: Reporter) -> None:
    reporter.say(
        f"Text: {corpus.n_words:,} words in {len(corpus.train):,} texts, "
        f"{corpus.n_types:,} distinct; {corpus.n_vocabulary:,} are predicted, "
        f"{corpus.unknown_share:.1%} of the text is <unk>; "
        f"{len(corpus.valid):,} texts held out."
    )
    if corpus.n_empty:
        reporter.say(f"[dim]{corpus.n_empty:,} texts hold no word and were left out.[/]")


def _build(
    config: PretrainConfig, corpus: Corpus, base: BilmFolder | None, run: Path, reporter: Reporter
) -> BilmFolder:
    """The model before its first step."""
    if base is not None:
        return BilmFolder(base.model, base.text, base.vocabulary, base.tokenizer, {})
    pipeline = TextPipeline(config.text)
    vocabulary = corpus.vocabulary
    tokenizer_file = run / "tokenizer.json"
    if tokenizer_file.exists():  # pieces are learnt once a run
        tokenizer = load_tokenizer(tokenizer_file)
    else:
        if config.model.input == "subword":
            with reporter.counting("Learning pieces"):
                pieces = learn_bpe(corpus.words, corpus.counts, config.vocabulary.n_pieces)
            tokenizer = pipeline.tokenizer(pieces)
        elif config.model.input == "morpheme":
            with reporter.counting("Learning morphemes"):
                tokenizer = pipeline.tokenizer(learn_morphemes(corpus.words, corpus.counts))
        else:
            tokenizer = pipeline.word_tokenizer(vocabulary.words)
        write_text(tokenizer_file, tokenizer.to_str(pretty=False))
    has_pieces = config.model.input in ("subword", "morpheme")
    n_pieces = tokenizer.get_vocab_size() if has_pieces else 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.training.seed)
        model = Bilm(config.model, len(vocabulary), n_pieces)
    model.predictor.start_from_counts(target_counts(corpus))
    return BilmFolder(model, config.text, vocabulary, tokenizer, {})


def target_counts(corpus: Corpus) -> npt.NDArray[np.int64]:
    """How often each word of the vocabulary is a target, on average of both directions."""
    counts = corpus.counts[: corpus.n_vocabulary].copy()
    counts[UNK] += corpus.counts[corpus.n_vocabulary :].sum()
    # <s> is predicted by the backward direction only, </s> by the forward one.
    counts[BOS] = counts[EOS] = (len(corpus.train) + 1) // 2
    return counts


def _held_out(result: TrainingResult) -> dict[str, float] | None:
    """The figures of the weights that are kept."""
    best = [entry for entry in result.position.history if entry["step"] == result.position.best_step]
    if not best:
        return None
    return {name: best[-1][name] for name in ("perplexity", "forward", "backward")}


def _provenance(
    config: PretrainConfig,
    corpus: Corpus,
    source: TextSource,
    result: TrainingResult,
    held_out: dict[str, float] | None,
    command: str,
) -> dict[str, Any]:
    place = result.position
    return {
        "settings": config.training.to_dict(),
        "corpus": corpus.record(source),
        "held_out": held_out,
        "history": place.history,
        "stopped": result.stopped,
        "n_steps": place.step,
        "n_words": place.n_words,
        "seconds": round(place.seconds, 1),
        "date": datetime.date.today().isoformat(),
        "command": replace_surrogates(command),
        "versions": {
            "elmokit": elmokit.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
