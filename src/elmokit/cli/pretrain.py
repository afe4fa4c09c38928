"""``elmokit pretrain``: raw text to a biLM folder."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from elmokit.bilm.settings import PRESETS, BilmConfig, TrainingConfig, resolve
from elmokit.cli.options import READ, Section, Settings, command_line, resolve_model, with_settings
from elmokit.core.config import duration
from elmokit.core.errors import ConfigError, nearest
from elmokit.text.settings import PIPELINES, ReadConfig, TextConfig, VocabularyConfig

_SECTIONS = (
    READ,
    Section("text", TextConfig, "Cleaning and words", ()),
    Section("vocabulary", VocabularyConfig, "Vocabulary", ()),
    Section("model", BilmConfig, "Model", ("input", "dim")),
    Section("training", TrainingConfig, "Training", ("epochs", "max_time", "seed")),
)


@with_settings(*_SECTIONS)
def command(
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help="Files (.txt .csv .tsv .jsonl .parquet, also .gz .zst), folders, patterns, or - for "
            "standard input.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the model.", show_default=False)],
    preset: Annotated[str, typer.Option(help=f"Starting settings \\[{'|'.join(PRESETS)}].")] = "small",
    pipeline: Annotated[
        str | None,
        typer.Option(
            help=f"Ready-made cleaning \\[{'|'.join(PIPELINES)}]; single switches win over it.",
            show_default=False,
        ),
    ] = None,
    valid: Annotated[
        list[str] | None,
        typer.Option(help="Held-out text; else a share of TEXT is held out.", show_default=False),
    ] = None,
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--from", parser=resolve_model, help="Train this model further on the text.", show_default=False
        ),
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(help="Keep the prepared text here, to share it.", show_default=False),
    ] = None,
    checkpoint_every: Annotated[str, typer.Option(help="Time between checkpoints.")] = "60s",
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")] = False,
    *,
    settings: Settings,
) -> None:
    """Train a bidirectional language model (ELMo) on your own text.

    [bold]elmokit pretrain my_text.txt --out my-elmo[/] is all it takes. Stop it with Ctrl-C, cut the
    power: the same command goes on where it was, to the same result. Any field of the preset can
    be changed by its flag below or in a TOML file ([dim]--config[/]) with the sections text,
    vocabulary, model and training.

    [bold]Presets[/]: [green]tiny[/] tries things out in a minute; [green]small[/] suits 1 to 20
    million words on two cores; [green]medium[/] is wider; [green]original[/] is the published ELMo
    (days on a CPU); [green]classic[/] is the 150-wide word-table model of course projects.
    """
    read = ReadConfig.from_dict(settings.pop("read"))
    layers: list[dict[str, dict[str, Any]]] = []
    if pipeline is not None:
        if pipeline not in PIPELINES:
            raise ConfigError(f"There is no pipeline {pipeline!r}.", remedy=nearest(pipeline, PIPELINES))
        layers.append({"text": PIPELINES[pipeline].to_dict()})
    resolved = resolve(preset, *layers, settings)
    every = duration(checkpoint_every)
    given = [*layers, settings]
    fixed = ("model", "text", "vocabulary")
    shape = sorted({name for layer in given for part in fixed for name in layer.get(part, {})})
    if start_from is not None and shape:
        raise ConfigError(
            f"--from keeps the model's shape, words and cleaning, so {', '.join(shape)} cannot be set.",
            remedy="Leave these flags out, or train a new model without --from.",
        )

    from elmokit.bilm.pretrain import pretrain
    from elmokit.core.console import Reporter

    reporter = Reporter("json" if as_json else "auto")
    result = pretrain(
        texts,
        out,
        resolved,
        read=read,
        valid=valid or (),
        start_from=start_from,
        corpus_folder=corpus,
        checkpoint_every=every,
        tensorboard=tensorboard,
        reporter=reporter,
        command=command_line(),
    )
    reporter.event(
        "end",
        folder=str(result.folder),
        stopped=result.stopped,
        held_out=result.held_out,
        n_steps=result.n_steps,
        n_words=result.n_words,
        seconds=round(result.seconds, 1),
    )
    ending = "Already done." if result.was_done else _ENDINGS[result.stopped]
    speed = result.n_words / max(result.seconds, 1e-9)
    reporter.say(
        f"[bold green]{ending}[/] {result.n_steps:,} steps, {result.n_words:,} words "
        f"in {_clock(result.seconds)} ({speed:,.0f} words/s)."
    )
    if result.held_out:
        reporter.say(
            f"Held-out perplexity [bold]{result.held_out['perplexity']:,.2f}[/] "
            f"(forward {result.held_out['forward']:,.2f}, backward {result.held_out['backward']:,.2f}; "
            f"exact, over all words)."
        )
    if result.stopped == "interrupted":
        reporter.say(
            f"Saved. Run the same command to go on; the model so far is in [bold]{escape(str(out))}[/]."
        )
        raise typer.Exit(130)
    reporter.say(
        f"The model is in [bold]{escape(str(out))}[/]. "
        f"Look at it with: elmokit inspect {escape(shlex.quote(str(out)))}"
    )


_ENDINGS = {
    "done": "Done.",
    "early": "Stopped early, no more gain.",
    "time": "Time is up.",
    "interrupted": "Interrupted.",
}


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m" if hours else f"{minutes}m {rest:02}s" if minutes else f"{rest}s"
