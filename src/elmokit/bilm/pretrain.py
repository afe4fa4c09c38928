"""Train a bidirectional language model on raw text."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmokit.bilm.folder import BilmFolder, forms_of, input_table, load_bilm, save_bilm, weights_of
from elmokit.bilm.model import Bilm, Noise
from elmokit.bilm.perplexity import FEW_WORDS, next_word_accuracy, perplexity, predicted
from elmokit.bilm.pretrain_report import held_out_warning, text_rows, write_pretrain_report
from elmokit.bilm.settings import PretrainConfig, TrainingConfig, resolve
from elmokit.bilm.softmax import TablePredictor
from elmokit.bilm.state import BilmState, average_state, distinct_words
from elmokit.bilm.word_table import WordTable
from elmokit.core.atomic import write_text
from elmokit.core.config import merge_settings, setting_paths
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError
from elmokit.core.formatting import join_names
from elmokit.core.model_card import origin_record
from elmokit.core.model_folder import OUTDATED, load
from elmokit.core.names import read_json
from elmokit.core.run_folder import RunFolder, open_out
from elmokit.core.tensors import fingerprint
from elmokit.core.threads import one_core_each
from elmokit.text.batching import Ints, Streams
from elmokit.text.corpus import Corpus, CorpusSettings, prepare_corpus
from elmokit.text.rows import TextSource
from elmokit.text.settings import ReadConfig
from elmokit.text.tokenizing import BOS, EOS, SPECIALS, UNK, TextPipeline, load_tokenizer
from elmokit.text.vocabulary import FormIds, learn_bpe, learn_morphemes, require_morfessor
from elmokit.training.loop import Carry, StepResult, Stopped, TrainingResult, reopen, train
from elmokit.training.processes import Processes

_HELD_OUT_WORDS, _RANKED_WORDS = 100_000, 20_000
_PIECES = ("subword", "morpheme")
_FIGURES = ("perplexity", "forward", "backward")
_LENGTHS = ("epochs", "max_steps", "max_time")  # with more of any, a finished run goes on
_SOFTMAX, _SOFTMAX_RATE = "predictor.", 4.0  # a new one learns so much faster than the model
_FIT_SHARE, _FIT_RATE = 0.2, 2.5  # at first it is trained alone, and faster still: of the steps or the time


@dataclass(frozen=True)
class PretrainResult:
    """How pretraining ended.

    Attributes:
        folder: The model folder.
        stopped: "done", "early", "time" or "interrupted".
        held_out: Exact held-out perplexity (``perplexity``, ``forward``, ``backward``), or None.
        n_words: Words read, over all epochs.
        seconds: Training time, over all starts.
        was_done: The run had ended before; nothing was done now.
    """

    folder: Path
    stopped: Stopped
    held_out: dict[str, float] | None
    n_steps: int
    n_words: int
    seconds: float
    was_done: bool = False


class LanguageModeling:
    """Language modeling over streams of running text, for the training loop.

    Args:
        new_softmax: The model is trained, but not its softmax, which learns faster than the rest.

    Attributes:
        part: The part of the model that is trained, as its parameters begin; "" for all of it.
    """

    def __init__(
        self,
        saved: BilmFolder,
        corpus: Corpus,
        config: TrainingConfig,
        *,
        new_softmax: bool = False,
        processes: Processes | None = None,
    ) -> None:
        self.model, self.corpus, self.config = saved.model, corpus, config
        self.new_softmax, self.part = new_softmax, ""
        self.features = saved.features.rows(corpus.words)
        # A validation text is measured whole; of a held-out share, enough for a steady figure.
        self.valid = corpus.valid if corpus.has_valid else corpus.valid.spread(_HELD_OUT_WORDS)
        self.n_streams = max(1, min(config.n_lanes, corpus.train.n_tokens // max(2, config.window)))
        self.processes = processes or Processes()
        if self.processes.size > self.n_streams:
            raise ConfigError(
                f"{self.processes.size} processes cannot share out {self.n_streams} streams of text.",
                remedy="Use fewer processes, or raise n_lanes (a short text has fewer streams).",
            )
        self._streams = self._order(0)

    def _order(self, epoch: int) -> Streams:
        rng = np.random.default_rng([self.config.seed, epoch])
        order = rng.permutation(len(self.corpus.train))
        return Streams(self.corpus.train, self.n_streams, self.config.window, order)

    def parameters(self) -> Mapping[str, nn.Parameter]:
        """All parameters that are trained."""
        named = self.model.named_parameters()
        return {name: parameter for name, parameter in named if name.startswith(self.part)}

    def lr_scales(self) -> Mapping[str, float]:
        """One learning rate for all but a new softmax."""
        names = self.parameters() if self.new_softmax else ()
        return {name: _SOFTMAX_RATE for name in names if name.startswith(_SOFTMAX)}

    def steps_per_epoch(self) -> int:
        """Windows in a pass over the text."""
        return len(self._streams)

    def start_epoch(self, epoch: int) -> Carry:
        """Shuffle the documents; every stream starts from zero."""
        self._streams = self._order(epoch)
        n_streams = self._streams.n_streams
        own = self.processes.part(n_streams, n_streams)
        return self.model.zero_state(own.stop - own.start).tensors()

    def step(self, index: int, carry: Carry, rng: torch.Generator) -> StepResult:
        """The loss of both directions over one window, and its gradients; of several processes, the term of
        its own streams. All random choices are made for all streams, however these are shared out."""
        self.model.train()
        window = self._streams.window(index)  # (direction, time + 1, stream)
        rows, places = distinct_words(window[:, :-1], self.features)
        noise = Noise.draw(len(rows), window.shape[2], self.config, rng)
        samples = self.model.predictor.draw(rng)
        n_targets = sum(
            len(predicted(words, 0, direction)[0]) for direction, words in enumerate(window[:, 1:])
        )
        own = self.processes.part(window.shape[2], self._streams.n_streams)
        state, after, total = BilmState.from_tensors(carry), list[Carry](), torch.zeros(())
        parameters, sums = self.parameters(), dict[str, Tensor]()
        for first, last in _split(own.start, own.stop, self.config.accumulate):
            part = slice(first, last)
            words, inner = places[:, :, part].unique(return_inverse=True)
            before = state.rows(last - own.start, first - own.start)
            loss, new_state = self._loss(
                window[:, 1:, part], rows[words], inner, before, noise.cut(part, words), samples
            )
            loss = loss / max(1, n_targets)
            loss.backward()
            for name, parameter in parameters.items() if self.config.accumulate > 1 else ():
                if (
                    parameter.grad is not None
                ):  # summed here: the order of threads would decide on the last bits
                    sums[name] = sums[name] + parameter.grad if name in sums else parameter.grad
                    parameter.grad = None
            total += loss.detach()
            after.append(new_state.rows(last - first).tensors())
        for name, gradient in sums.items():
            parameters[name].grad = gradient
        joined = {name: torch.cat([one[name] for one in after]) for name in after[0]} if after else carry
        return StepResult(total, n_targets // 2, joined)

    def _loss(
        self,
        words: Ints,
        features: Tensor,
        index: Tensor,
        state: BilmState,
        noise: Noise,
        samples: Tensor | None,
    ) -> tuple[Tensor, BilmState]:
        """The summed loss of predicting ``words`` (direction, time, stream), and the state after them."""
        targets = [predicted(some, self.model.n_words, direction) for direction, some in enumerate(words)]

        def loss(direction: int, top: Tensor) -> Tensor:
            places, following = targets[direction]
            hidden = top.flatten(0, 1).index_select(0, places)
            with torch.enable_grad(), torch.autocast("cpu", enabled=False):
                return self.model.predictor.training_loss(hidden.float(), following, samples)

        low = torch.autocast("cpu", torch.bfloat16, self.config.precision == "bfloat16")
        with torch.set_grad_enabled(not self.part), low:
            losses, after = self.model.stream(features, index, state, self.config, noise, loss)
        return torch.stack(losses).sum(), after.map(Tensor.float)

    def evaluate(self) -> dict[str, float]:
        """Exact perplexity of the held-out text."""
        if self.valid.n_tokens == 0:
            return {}
        result = perplexity(self.model, self.valid, self.features, processes=self.processes)
        figures = {name: getattr(result, name) for name in _FIGURES}
        return {"score": result.perplexity, **figures}


def pretrain(  # long because it is the whole verb; # many parameters because each is a flag
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    preset: PretrainConfig | str | None = None,
    *,
    valid: Sequence[str | Path] = (),
    from_model: str | Path | None = None,
    words_from: str | Path | None = None,
    corpus: str | Path | None = None,
    read: ReadConfig | None = None,
    checkpoint_every: float = 60.0,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    command: str = "",
    **settings: Any,
) -> PretrainResult:
    """Train a bidirectional language model on raw text.

    Called again with the same arguments, it resumes where it was stopped, and ends with the same bits as if
    it had not been stopped (with ``max_time``, their speed decides on the steps). Called again after its end
    with more ``epochs``, ``max_steps`` or ``max_time``, it goes on; the learning rate is then the one at this
    place of the longer schedule.

    Args:
        texts: Files, folders, glob patterns, or ``-`` for standard input.
        out: The model folder to make; its ``run`` folder holds checkpoints and metrics.
        preset: The name of a preset, or all settings; by default ``small``, with ``from_model`` ``adapt``.
        valid: Text to measure perplexity on; without it a share of ``texts`` is held out.
        from_model: A model to train further (``--from``): its shape, cleaning and sentence vector stay,
            frequent new words are added, and a new softmax is fitted first if it has none.
        words_from: For the input ``char+word``: word vectors that the table starts from, or a model whose
            word table is read as it is.
        corpus: Where to keep the prepared text, to share it between runs.
        checkpoint_every: Seconds between checkpoints.
        overwrite: Start over if ``out`` holds another run.
        command: The command line, for the model card.
        settings: Changes to ``preset`` and ``read`` by name, such as ``epochs=3`` or ``text_columns="body"``.
    """
    reporter, out = reporter or Reporter("silent"), Path(out)
    base = load_bilm(from_model) if from_model is not None else None
    config, read, words = _merge(preset, read or ReadConfig(), settings, base, words_from)
    names = [texts] if isinstance(texts, str | Path) else [*texts]
    with Processes.join(reporter.say) as processes, contextlib.ExitStack() as stack, one_core_each():
        if processes.rank:
            reporter, folder = Reporter("silent"), RunFolder(out, out / "run", "bilm")
        else:
            folder = open_out(out, "bilm", overwrite=overwrite)
            stack.enter_context(folder.lock())
        _check_readable([*names, *valid], processes)
        source = TextSource(names, read, exclude=out, say=reporter.note)
        valid_source = TextSource(valid, read, exclude=out, say=reporter.note) if valid else None
        for _ in processes.in_turn():
            folder.run.mkdir(parents=True, exist_ok=True)  # on this machine
            place = Path(corpus or folder.run / "corpus")
            with reporter.counting("Preparing the text", unit="characters") as advance:
                prepared = prepare_corpus(
                    place, _corpus_settings(config, base), source, valid_source, progress=advance
                )
            inputs = _inputs(prepared, base, words)
            if processes.rank == 0:
                training = read_json(out / "config.json").get("training", {}) if folder.has_result() else {}
                is_interrupted = training.get("stopped", "interrupted") == "interrupted"
                may_grow, grow = () if is_interrupted else _LENGTHS, partial(reopen, folder.run)
                settings = config.to_dict()
                folder.require_same(settings, inputs, may_grow, grow, is_interrupted=is_interrupted)
            if base is not None:
                saved, new_softmax = _adapt(base, config, prepared)
            else:
                saved, new_softmax = _build(config, prepared, folder.run, reporter, words), False
        pieces = saved.tokenizer.to_str(pretty=False)
        same = json.dumps([inputs, config.to_dict(), pieces], sort_keys=True)
        processes.require_same("text, model and settings", same)
        task = LanguageModeling(
            saved, prepared, config.training, new_softmax=new_softmax, processes=processes
        )
        _describe(task, reporter)
        result = _train(task, folder.run, reporter, checkpoint_every)
        keeps_old = result.stopped == "interrupted" and (out / OUTDATED).exists()
        if processes.rank == 0 and not keeps_old and not (result.was_done and folder.has_result()):
            _save(out, saved, task, result, prepared.record(source), command)
        processes.wait()  # for the model: whoever started them takes the end of one for the end of all
    end, held_out = result.position, _held_out(result)
    return PretrainResult(out, result.stopped, held_out, end.step, end.n_words, end.seconds, result.was_done)


def _check_readable(texts: Sequence[str | Path], processes: Processes) -> None:
    if processes.size > 1 and "-" in texts:
        raise ConfigError(
            "Several processes cannot share standard input.", remedy="Write the text to a file first."
        )


def _inputs(corpus: Corpus, base: BilmFolder | None, words: Any) -> dict[str, str | None]:
    """Fingerprints of what the run reads."""
    inputs: dict[str, str | None] = {"corpus.content_hash": corpus.content_hash, "start_from.weights": None}
    if base is not None:
        inputs["start_from.weights"] = fingerprint(*base.model.parameters())
        inputs["start_from.n_words"] = str(corpus.n_vocabulary)
    if words is not None:
        inputs["words_from"] = words.fingerprint
    return inputs


def _corpus_settings(config: PretrainConfig, base: BilmFolder | None) -> CorpusSettings:
    return CorpusSettings(
        config.text,
        config.vocabulary,
        open_words=config.model.input != "word",
        held_out=config.training.held_out,
        fixed=_kept_words(base) if base else (),
        extend=base is not None,
        min_held_out=FEW_WORDS if config.training.held_out == TrainingConfig.held_out else 0,
    )


def _merge(
    preset: PretrainConfig | str | None,
    read: ReadConfig,
    settings: Mapping[str, Any],
    base: BilmFolder | None,
    words_from: str | Path | None,
) -> tuple[PretrainConfig, ReadConfig, Any]:
    """The settings with all changes made, and the model that ``words_from`` names. A model that is trained
    further keeps its shape and cleaning."""
    preset = preset or ("adapt" if base else "small")
    config = resolve(preset) if isinstance(preset, str) else preset
    if base is not None:
        fixed = {path[-1] for path in setting_paths(config) if path[0] in ("text", "model")} | {"n_pieces"}
        names = [name for name in settings if name.split(".")[-1] in fixed]
        if names := names + (["words_from"] if words_from is not None else []):
            raise ConfigError(
                f"--from keeps the model's shape and cleaning, so {join_names(names)} cannot be set.",
                remedy="Leave these settings out, or train a new model without --from.",
            )
    configs: dict[str, Any] = merge_settings(settings, pretrain=config, read=read)
    config = configs["pretrain"]
    if base is not None:
        model = base.model.config
        model = replace(model, objective="sampled") if model.objective == "none" else model
        config = replace(config, text=base.text, model=model)
    words = _load_words(words_from) if words_from is not None else None
    if words is not None:
        dim = (_word_table(words) or words).dim
        config = replace(config, model=replace(config.model, input="char+word", table_dim=dim))
    if base is None and config.model.input == "morpheme":
        require_morfessor()
    return config, configs["read"], words


def _describe(task: LanguageModeling, reporter: Reporter) -> None:
    for name, value in text_rows(task.corpus, task.valid):
        reporter.say(f"{name.capitalize()}: {value}.")
    n_streams, n_lanes, shape = task.n_streams, task.config.n_lanes, task.model.config
    if n_streams < n_lanes:
        reporter.say(f"[yellow]The text is short: n_lanes is {n_streams} instead of {n_lanes}.[/]")
    if warning := held_out_warning(task.valid.n_words):
        reporter.say(f"[yellow]{warning}[/]")
    n_parameters = sum(parameter.numel() for parameter in task.model.parameters())
    reporter.say(
        f"Model: {shape.input} input, {shape.n_layers}+{shape.n_layers} LSTM layers, "
        f"{2 * shape.dim} wide, {n_parameters:,} parameters."
    )


def _load_words(name: str | Path) -> Any:
    """Word vectors for the table of the input ``char+word``, or a model whose word table is read as it is."""
    model = load(name)
    if model.kind != "word-vectors" and _word_table(model) is None:
        raise ConfigError(
            f"{name} has no word vectors for the table.",
            remedy="Give a folder made by elmokit baseline, or a model with a word table.",
        )
    return model


def _word_table(model: Any) -> WordTable | None:
    return model.folder.word_table if model is not None and model.kind == "bilm" else None


def _new_model(config: PretrainConfig, corpus: Corpus, n_pieces: int, table: WordTable | None) -> Bilm:
    """A model with random weights, which knows how frequent words are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.training.seed)
        model = Bilm(config.model, corpus.n_vocabulary, n_pieces)
    if table is not None:
        model.encoder.table = table
    model.predictor.start_from_counts(target_counts(corpus))
    return model


def _build(config: PretrainConfig, corpus: Corpus, run: Path, reporter: Reporter, words: Any) -> BilmFolder:
    """A new model before its first step."""
    vocabulary, pipeline, file = corpus.vocabulary, TextPipeline(config.text), run / "tokenizer.json"
    table, n_pieces = _word_table(words), 0
    if config.model.input in _PIECES:
        if not file.exists():  # pieces are learned once in a run
            with reporter.counting("Learning pieces"):
                pieces = (
                    learn_bpe(corpus.words, corpus.counts, config.vocabulary.n_pieces)
                    if config.model.input == "subword"
                    else learn_morphemes(corpus.words, corpus.counts)
                )
            write_text(file, pipeline.tokenizer(pieces).to_str(pretty=False))
        tokenizer = load_tokenizer(file)
        n_pieces = tokenizer.get_vocab_size()
    else:
        tokenizer = pipeline.word_tokenizer(vocabulary.words)
        if config.model.input == "char+word" and table is None:
            n_pieces = 1 + len(forms_of(vocabulary))
    model = _new_model(config, corpus, n_pieces, table)
    if words is not None and table is None:  # copy the rows of known forms; the first word of a form counts
        forms = FormIds(forms_of(vocabulary)).rows(words.vocabulary.words)[:, 0]
        places, firsts = np.unique(forms, return_index=True)
        known = places > 0
        with torch.no_grad():
            model.encoder.table.weight[places[known]] = torch.from_numpy(words.vectors[firsts[known]])  # type: ignore[union-attr, operator]
    return BilmFolder(model, config.text, vocabulary, tokenizer, {}, word_table=table)


def _kept_words(base: BilmFolder) -> tuple[str, ...]:
    """The words that a model predicts or has rows for; if none, its new softmax is for those of the text."""
    config = base.model.config
    has_rows = config.input == "word" or (config.input == "char+word" and base.model.n_pieces > 0)
    return tuple(base.vocabulary.words) if has_rows or config.objective != "none" else SPECIALS


def _adapt(base: BilmFolder, config: PretrainConfig, corpus: Corpus) -> tuple[BilmFolder, bool]:
    """``base`` with the words of the corpus, and whether its softmax is new.

    New words start as what the model took them for: ``<unk>``, or a word without a row in the table.
    """
    old, vocabulary, known = base.model, corpus.vocabulary, weights_of(base.model)
    if base.vocabulary.counts is not None and len(_kept_words(base)) == old.n_words:
        vocabulary.counts = corpus.counts[: len(vocabulary)].copy()
        vocabulary.counts[: old.n_words] += base.vocabulary.counts
    if len(vocabulary) == old.n_words and old.config == config.model:
        return replace(base, vocabulary=vocabulary), False
    has_pieces = config.model.input in _PIECES
    n_pieces = 1 + len(forms_of(vocabulary)) if old.n_pieces and not has_pieces else old.n_pieces
    model = _new_model(config, corpus, n_pieces, input_table(old))
    is_table = isinstance(old.predictor, TablePredictor)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name not in known or (name.startswith(_SOFTMAX) and not is_table):
                continue
            n_known = len(known[name])
            parameter[:n_known] = known[name]
            if len(parameter) > n_known:
                parameter[n_known:] = 0.0 if name == "encoder.table.weight" else known[name][UNK]
        if is_table:  # the chance of <unk> is divided
            places = torch.tensor([UNK, *range(old.n_words, len(vocabulary))])
            shares = torch.from_numpy(target_counts(corpus))[places] + 0.5
            model.predictor.bias[places] += (shares / shares.sum()).log().float()  # type: ignore[operator, index]
    tokenizer = base.tokenizer if has_pieces else base.pipeline.word_tokenizer(vocabulary.words)
    return replace(base, model=model, vocabulary=vocabulary, tokenizer=tokenizer), not is_table


def _train(task: LanguageModeling, run: Path, reporter: Reporter, checkpoint_every: float) -> TrainingResult:
    """Train the model; a new softmax is first trained alone."""
    config = task.config
    options: Any = {"reporter": reporter, "checkpoint_every": checkpoint_every, "processes": task.processes}
    if not task.new_softmax:
        return train(task, config, run, **options)
    n_steps = config.max_steps or config.epochs * task.steps_per_epoch()
    first = replace(
        config,
        lr=_FIT_RATE * config.lr,
        max_steps=max(1, round(_FIT_SHARE * n_steps)),
        max_time=config.max_time and max(1.0, _FIT_SHARE * config.max_time),
    )
    rest = replace(config, max_time=config.max_time and max(1.0, (1 - _FIT_SHARE) * config.max_time))
    (run / "softmax").mkdir(parents=True, exist_ok=True)
    fitting = copy.copy(task)
    fitting.part = _SOFTMAX
    reporter.say("The model has no softmax: one is fitted to the words of the text first.")
    before = train(fitting, first, run / "softmax", **options)
    if before.stopped == "interrupted":
        return before
    task.model.load_state_dict(before.weights, strict=False)
    result = train(task, rest, run, **options)
    place, spent = result.position, before.position
    n_words, seconds = place.n_words + spent.n_words, place.seconds + spent.seconds
    return replace(result, position=replace(place, n_words=n_words, seconds=seconds))


def _split(first: int, last: int, n_parts: int) -> Iterator[tuple[int, int]]:
    """Both ends of up to ``n_parts`` parts of equal size."""
    bounds = np.linspace(first, last, n_parts + 1).astype(int).tolist()
    return ((start, stop) for start, stop in itertools.pairwise(bounds) if start < stop)


def target_counts(corpus: Corpus) -> npt.NDArray[np.int64]:
    """How often each word of the vocabulary is a target, on average of both directions."""
    counts = corpus.counts[: corpus.n_vocabulary].copy()
    counts[UNK] += corpus.counts[corpus.n_vocabulary :].sum()
    # <s> is predicted by the backward direction only, </s> by the forward one.
    counts[BOS] = counts[EOS] = (len(corpus.train) + 1) // 2
    return counts


def _held_out(result: TrainingResult) -> dict[str, float] | None:
    """The figures of the weights that are kept."""
    place = result.position
    best = [entry for entry in place.history if entry["step"] == place.best_step]
    return {name: best[-1][name] for name in _FIGURES} if best else None


def _save(
    out: Path,
    saved: BilmFolder,
    task: LanguageModeling,
    result: TrainingResult,
    corpus: dict[str, Any],
    command: str,
) -> None:
    """Write the model folder, with where the model comes from; of a run that has ended, also its report."""
    held_out = _held_out(result)
    record: dict[str, Any] = {
        "settings": task.config.to_dict(),
        "corpus": corpus,
        "held_out": held_out,
        "history": result.position.history,
        "stopped": result.stopped,
        "n_steps": result.position.step,
        "n_words": result.position.n_words,
        "seconds": round(result.position.seconds, 1),
        **{name: saved.training[name] for name in ("license", "notes") if name in saved.training},
        **origin_record(command, "torch"),
    }
    saved.model.load_state_dict(result.weights, strict=False)
    saved.model.eval()
    start_state = average_state(saved.model, task.corpus.train, task.features)
    report = None
    if result.stopped != "interrupted":
        accuracy = next_word_accuracy(saved.model, task.valid.spread(_RANKED_WORDS), task.features)
        report = partial(
            write_pretrain_report, out, result, task.corpus, task.valid, held_out or {}, accuracy
        )
    save_bilm(out, replace(saved, training=record, start_state=start_state), report=report)
