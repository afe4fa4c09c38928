"""``TaskModel``: an encoder, a mix of its layers and a head, fitted to a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from elmokit.bilm.lstm import shared_dropout
from elmokit.core.console import Advance
from elmokit.core.errors import ConfigError, DataError, ModelError, nearest
from elmokit.core.formatting import join_names, plural
from elmokit.core.model_card import Described, Facts
from elmokit.core.model_folder import Model, Report, explain_damage, read_record, write_model
from elmokit.core.names import resolve_name
from elmokit.core.tensors import load_weights, save_tensors
from elmokit.tasks.layer_cache import BATCH_WORDS, cut_marked
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import AnyTask, Columns, Inputs, Labels, Output, Predictor, format_scores, get_task
from elmokit.text.batching import bucket_batches, chunked
from elmokit.text.tokenizing import n_characters
from elmokit.training.machine import tuned_process
from elmokit.vectors.encoder import Encoder, Layers, find_marks
from elmokit.vectors.foreign import open_encoder
from elmokit.vectors.mix import Mix, OwnMix, make_mix

_NO_LIMIT = 1_000_000_000  # words of a text
_CHUNK_ROWS, _CHUNK_CHARACTERS = 1024, 1024_000  # read and answered together


class Network(nn.Module):
    """Mix and head: from a batch's layers to the task's output."""

    def __init__(
        self,
        task: AnyTask,
        config: ClassifierConfig,
        n_layers: int,
        dim: int,
        labels: Labels,
        *,
        directional: bool = True,
        sentence_dim: int = 0,
    ) -> None:
        super().__init__()
        self.config = resolve_head(task, config)
        self.mix: Mix = make_mix(config.mix, n_layers, dim, config.fit.seed)
        if task.own_mix is not None:
            self.mix = OwnMix(config.mix, task.own_mix, n_layers, dim)
        head, self.reads_sentences = task.heads[self.config.head.head], sentence_dim > 0
        more: dict[str, Any] = {"sentence_dim": sentence_dim} if self.reads_sentences else {}
        self.head = head(config.head, self.mix.out_dim, labels, **more)
        # 0.1 took all vectors for such.
        self.head.directional = (directional and self.mix.directional) or config.head.pool_edges
        if buffers := [name for name, _ in self.named_buffers()]:
            raise ConfigError(
                f"A head or mix has the buffer {buffers[0]!r}, but only parameters are kept.",
                remedy="Make it a parameter (requires_grad=False), or leave it out.",
            )

    def forward(
        self, fields: Sequence[Layers], rng: torch.Generator | None = None, sentences: Sequence[Tensor] = ()
    ) -> tuple[Output, list[Tensor]]:
        """The head's output, and the mask of each field as the head got it; no ``rng``, no dropout."""
        self.train(rng is not None)  # for layers of a user's head, such as nn.Dropout
        if not self.config.head.pool_edges:
            fields = [at_least_one_word(layers.words()) for layers in fields]
        dropout = self.config.head.dropout_head / 2
        mixed = [shared_dropout(self.mix(layers.values), dropout, rng, over=1) for layers in fields]
        masks = [layers.mask for layers in fields]
        more = (sentences,) if self.reads_sentences else ()
        return self.head(mixed, masks, rng, *more), masks


def _shared_batch(encoder: Encoder, texts: Sequence[Sequence[str]]) -> Layers:
    """The layers of a batch in which texts that are alike are computed once."""
    numbers = dict[tuple[str, ...], int]()
    places = [numbers.setdefault(tuple(text), len(numbers)) for text in texts]
    layers = encoder.batch([list(text) for text in numbers])
    if len(numbers) == len(texts):
        return layers
    values = tuple(layer[places] for layer in layers.values)
    return replace(layers, values=values, mask=layers.mask[places])


def at_least_one_word(layers: Layers) -> Layers:
    """With one step of padding if all texts of a batch are empty, so that heads need not care."""
    if layers.mask.shape[1]:
        return layers
    values = tuple(layer.new_zeros(len(layer), 1, layer.shape[2]) for layer in layers.values)
    return Layers(values, layers.mask.new_zeros(len(layers.mask), 1))


def resolve_head(task: AnyTask, config: ClassifierConfig) -> ClassifierConfig:
    """The settings with the name of one of the task's heads ("auto" is the first one), and no limit of words
    if the task reads texts whole."""
    name = next(iter(task.heads)) if config.head.head == "auto" else config.head.head
    if name not in task.heads:
        raise ConfigError(f"The task {task.name!r} has no head {name!r}.", remedy=nearest(name, task.heads))
    fit = config.fit if task.cuts else replace(config.fit, max_words=_NO_LIMIT)
    return replace(config, head=replace(config.head, head=name), fit=fit)


def sentence_dim(task: AnyTask, config: ClassifierConfig, encoder: Encoder) -> int:
    """The width of the sentence vectors that the head reads: 0 unless it wants them and the encoder has
    trained ones. Those stay the same in fine-tuning."""
    reads = getattr(task.heads[config.head.head], "reads_sentences", False)
    return encoder.sentences([]).shape[1] if reads and encoder.has_sentence_vector else 0


def load_encoder(name: str | Path) -> Encoder:
    """A bundled model, or one that ``pretrain``, ``baseline`` or ``convert`` has made: one with layers."""
    loaded = open_encoder(name)
    if hasattr(loaded, "layers"):
        return cast(Encoder, loaded)
    raise ConfigError(
        f"{name} has one vector for each text and no layers, which this head needs.",
        remedy="Use an encoder made by elmokit pretrain or baseline. Only to classify, --head auto takes "
        "this one, too.",
    )


@dataclass(frozen=True)
class FitRecord:
    """How a model was fitted; part of config.json.

    Attributes:
        columns: Where the rows had their texts and labels.
        encoder: Its name and a few facts.
        mix_start: The weight of each layer before training.
        splits: Rows and scores of each split, the most informative first.
        labels: The labels as a caller gave them, if they are not texts.
        rivals: The main score of simple methods on the same held-out rows.
    """

    date: str = ""
    command: str = ""
    stopped: str = ""
    columns: Columns = Columns()  # noqa: RUF009 (frozen)
    history: Sequence[Mapping[str, float]] = ()
    mix_start: Mapping[str, float] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    encoder: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    splits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    labels: Sequence[Any] = ()
    rivals: Mapping[str, float] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, str]]:
        """For a card: scores, date and command."""
        rows = [
            (name, f"{format_scores(scores)} ({scores['n']:,} rows)") for name, scores in self.splits.items()
        ]
        return [row for row in (*rows, ("date", self.date), ("made by", self.command)) if row[1]]

    def to_json(self) -> dict[str, Any]:
        """Without what is empty."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> FitRecord:
        """The inverse of ``to_json``; averages that 0.1 wrote as mappings are left out."""
        known = {entry.name: values[entry.name] for entry in fields(cls) if entry.name in values}
        splits = {
            split: {name: score for name, score in scores.items() if not isinstance(score, dict)}
            for split, scores in known.get("splits", {}).items()
        }
        return cls(**{**known, "columns": Columns(**known.get("columns", {})), "splits": splits})


def read_fitted(values: Mapping[str, Any]) -> tuple[Labels, list[int], FitRecord]:
    """From config.json: the labels, the numbers of those with training rows if it says so, and the record."""
    separator = values["record"].get("label_separator") or "|" if values.get("multilabel") else ""
    mean, spread = map(float, values.get("scale") or (0, 0))
    scale = (mean, spread) if spread else None
    labels = Labels(tuple(map(str, values["classes"])), separator, scale, values.get("marked"))
    seen = values.get("seen", [])
    if len({*labels.names}) < len(labels) or seen != sorted({*seen} & {*range(len(labels))}):
        raise ValueError("its classes are not in order")
    return labels, seen, FitRecord.from_json({"notes": values.get("notes", []), **values["record"]})


def make_facts(
    model: Predictor, summary: str, rows: Iterable[tuple[str, str]], values: Mapping[str, Any]
) -> Facts:
    """What a fitted model is: its task and classes, further ``rows``, and how it was fitted."""
    names, record = model.task.classes(model.labels), model.record
    classes = [("classes", f"{len(names)}: {join_names(names, at_most=20)}")] if names else []
    usage = "Use it with `elmokit predict` or, in Python, `elmokit.load`. `report.html` shows how good it is."
    values = {"kind": model.kind, **values, **record.to_json()}
    return Facts(summary, (("task", model.task.name), *classes, *rows, *record.rows()), values, usage)


def chunks(
    task: AnyTask, rows: Iterable[Inputs], progress: Advance = lambda amount: None
) -> Iterator[list[Inputs]]:
    """Rows to be answered together: so many that work is efficient, so few that memory stays flat."""

    def checked() -> Iterator[Inputs]:
        for number, row in enumerate(cast(Iterable[Any], rows)):
            if isinstance(row, str) or len(row) != len(task.fields):
                problem = f"Row {number} is no tuple of {plural(len(task.fields), 'text')}"
                raise DataError(f"{problem}.", remedy=f"Give a tuple for each row: {', '.join(task.fields)}.")
            yield row

    for chunk in chunked(checked(), _CHUNK_ROWS, lambda row: sum(map(n_characters, row)), _CHUNK_CHARACTERS):
        yield chunk
        progress(len(chunk))


@dataclass(frozen=True, eq=False, repr=False)
class TaskModel(Described):
    """A fitted model: texts in, predictions out.

    >>> model = elmokit.load("my-classifier")                       # doctest: +SKIP
    >>> [p.label for p in model.predict([("Rates rose again.",)])]  # doctest: +SKIP
    """

    task: AnyTask
    encoder: Encoder
    network: Network
    labels: Labels
    record: FitRecord = FitRecord()
    kind = "classifier"

    @property
    def config(self) -> ClassifierConfig:
        """The settings it was fitted with."""
        return self.network.config

    def predict(self, inputs: Iterable[Inputs], *, progress: Advance = lambda amount: None) -> Iterator[Any]:
        """A prediction for each row, in order. Rows are read some at a time, so memory stays flat."""
        for chunk in chunks(self.task, inputs, progress):
            yield from self._predict_some(chunk)

    @torch.no_grad()
    def _predict_some(self, rows: Sequence[Inputs]) -> list[Any]:
        limit, rows = self.config.fit.max_words, [self.task.prepare(row) for row in rows]
        whole = [self.encoder.words(texts) for texts in zip(*rows, strict=True)]  # by field
        marks = [find_marks(texts) for texts in zip(*rows, strict=True)]
        words = [[text[:limit] for text in texts] for texts in whole]
        lengths = [sum(len(text) + 2 for text in row) for row in zip(*words, strict=True)]
        predictions: dict[int, Any] = {}
        with tuned_process():
            for batch in bucket_batches(lengths, BATCH_WORDS):
                some = [[texts[row] for row in batch] for texts in words]
                reads = some if self.network.reads_sentences else ()
                sentences = [torch.from_numpy(self.encoder.sentences(texts)) for texts in reads]
                layers = cut_marked([_shared_batch(self.encoder, texts) for texts in some], marks, batch)
                output, masks = self.network(layers, None, sentences)
                decoded = self.task.decode(output, masks, self.labels, [rows[row] for row in batch])
                predictions |= zip(batch.tolist(), decoded, strict=True)
        n_cut = [sum(max(0, len(text) - limit) for text in row) for row in zip(*whole, strict=True)]
        return [replace(predictions[row], n_cut=n) if n else predictions[row] for row, n in enumerate(n_cut)]

    def facts(self) -> Facts:
        """What it is: for its card, ``elmokit inspect`` and the service."""
        record, config, mix = self.record, self.config, self.network.mix.values()
        encoder = f"{'fine-tuned' if config.fit.finetune else 'frozen'}, {self.encoder.n_layers} layers"
        form = f", {config.mix.mix_form}" if config.mix.mix != "function" else ""
        own = {part: f"{name}, a class that is not stored here" for part, name in self.task.own_parts.items()}
        modules = {"mix and head": self.network, "encoder": self.encoder.module}
        sizes = {name: sum(p.numel() for p in module.parameters()) for name, module in modules.items()}
        rows = [
            ("encoder", f"{record.encoder.get('name', '')} ({encoder}, {self.encoder.dim} wide)".strip()),
            ("head", own.get("head") or f"{config.head.head}, {config.head.head_dim} wide"),
            ("mix", own.get("mix") or config.mix.mix + form),
        ]
        for name, value in mix.items():
            label = "gamma" if name == "mix_gamma" else name.replace("mix_", "layer ")
            start = f" ({record.mix_start[name]:.3f} before training)" if name in record.mix_start else ""
            rows.append(("", f"{label}: {value:.3f}{start}"))
        rows.append(("parameters", ", ".join(f"{name} {size:,}" for name, size in sizes.items())))
        is_classifier = self.task.classifies_texts
        summary = "A text classifier." if is_classifier else f"A model for the task {self.task.name!r}."
        return make_facts(self, summary, rows, {**self._header(), "mix": mix, "n_parameters": sizes})

    def _header(self) -> dict[str, Any]:
        return {
            "task": self.task.name,
            "classes": list(self.labels.names),
            "multilabel": bool(self.labels.separator),
            **({"scale": list(self.labels.scale)} if self.labels.scale else {}),
            **({} if self.labels.marked is None else {"marked": self.labels.marked}),
            "settings": self.config.to_dict(),
            **({"own_parts": dict(self.task.own_parts)} if self.task.own_parts else {}),
        }

    def save(self, folder: str | Path, report: Report = None) -> None:
        """Write it to a folder, with its encoder."""
        record = {**self.record.to_json(), "label_separator": self.labels.separator}
        values = {**self._header(), "directional": self.network.head.directional, "record": record}
        with write_model(Path(folder), self.kind, values, card=self.facts(), report=report) as staged:
            cast(Model, self.encoder).save(staged / "encoder")
            save_tensors(staged / "model.safetensors", dict(self.network.named_parameters()), {})

    @classmethod
    def load(cls, folder: str | Path, task: AnyTask | None = None) -> TaskModel:
        """Read a folder; anything missing, damaged, foreign or of the wrong shape is a ModelError. Parts of
        the user's own come with ``task``."""
        folder = resolve_name(folder)
        values = read_record(folder, cls.kind)
        task = task or get_task(str(values.get("task", "classify")))
        own_parts, encoder = dict(task.own_parts), load_encoder(folder / "encoder")
        with explain_damage(folder):
            if own_parts != (stored := values.get("own_parts", {})):
                given = ["folder", *(f"{part}={name}" for part, name in stored.items())]
                raise ModelError(
                    f"{folder} was fitted with other classes of the user's than were given; none are stored.",
                    remedy=f"Load it where they are defined: TextClassifier.load({', '.join(given)}).",
                )
            settings = {name: dict(section) for name, section in values["settings"].items()}
            if "thaw" in settings["fit"]:  # its name in 0.1
                settings["fit"]["unfreeze_every"] = settings["fit"].pop("thaw")
            settings["head"].setdefault("pool_edges", True)  # as 0.1 did
            labels, _, record = read_fitted(values)
            config = resolve_head(task, ClassifierConfig.from_dict(settings))
            n_sentence = sentence_dim(task, config, encoder)
            with torch.device("cpu" if own_parts else "meta"):  # impossible sizes are a RuntimeError
                options: Any = {"directional": encoder.directional, "sentence_dim": n_sentence}
                network = Network(task, config, encoder.n_layers, encoder.dim, labels, **options)
            joined = encoder.directional or config.head.pool_edges  # as before the mix was asked
            network.head.directional = values.get("directional", joined)
        weights = load_weights(folder / "model.safetensors", dict(network.named_parameters()))
        network.load_state_dict(weights, assign=True)
        return cls(task, encoder, network.eval(), labels, record)
