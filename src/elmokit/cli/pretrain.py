"""``elmokit pretrain``: raw text to a language model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from elmokit.bilm.settings import PRESETS, BilmConfig, TrainingConfig
from elmokit.cli import options
from elmokit.core.console import Reporter
from elmokit.core.names import resolve_name
from elmokit.text.settings import VocabularyConfig

_PRESET = f"Starting settings \\[{'|'.join(PRESETS)}]; default: small (with --from: adapt)."
_WORDS_FROM = "Word vectors for the table of --input char+word."
_PROCESSES = "Train with this many processes, each on part of the text."
_ENDINGS = {
    "done": "Done.",
    "early": "Stopped early: no further improvement.",
    "time": "Time is up.",
    "interrupted": "Interrupted.",
}


@options.with_settings(
    options.READ,
    options.TEXT,
    options.Section("vocabulary", VocabularyConfig, "Vocabulary"),
    options.Section("model", BilmConfig, "Model", ("input", "dim")),
    options.Section("training", TrainingConfig, "Training", ("epochs", "max_time", "seed")),
    overwrite=True,
)
def command(  # many parameters because each is an argument or a flag
    texts: options.Texts,
    out: options.Out,
    preset: Annotated[str | None, options.flag(_PRESET, metavar="CHOICE")] = None,
    valid: Annotated[
        list[str] | None, options.flag("Validation text; by default, a share of TEXT.", metavar="FILE")
    ] = None,
    from_model: Annotated[
        Path | None,
        options.flag("Train this model further on the text.", "--from", metavar="MODEL", parser=resolve_name),
    ] = None,
    words_from: Annotated[
        Path | None, options.flag(_WORDS_FROM, metavar="FOLDER", parser=resolve_name)
    ] = None,
    corpus: Annotated[
        Path | None,
        options.flag("Keep the prepared text here, to share it between runs.", metavar="FOLDER", hidden=True),
    ] = None,
    processes: Annotated[int, options.flag(_PROCESSES, metavar="INT", min=1)] = 1,
    checkpoint_every: options.CheckpointEvery = 60.0,
    as_json: options.Json = False,
    *,
    settings: options.Settings,
    reporter: options.Reporter,
) -> None:
    """Train a bidirectional language model (ELMo) on your own text.

    [bold]elmokit pretrain my_text.txt --out my-elmo[/] trains a model. If it is stopped or crashes, run
    the same command again: it resumes and ends with the same result (with --max-time, a similar one).
    With more --epochs or --max-time than before, a finished run goes on. Every setting of the preset can be
    changed: by a flag, by --set, or in a TOML file with the sections text, vocabulary, model and training.

    [bold]elmokit pretrain my_text.txt --from english --out mine[/] adapts a model to your text.

    On many cores or machines: --processes, or torchrun -m elmokit pretrain ...; see docs/scaling.md.

    [bold]Presets[/]: [green]tiny[/] is for trying things out; [green]small[/] suits 1 to 20
    million words on two cores; [green]medium[/] is wider; [green]original[/] is the published ELMo
    (days on a CPU); [green]classic[/] is the small word-table model of class projects;
    [green]adapt[/] is for --from.
    """
    from elmokit.bilm.pretrain import pretrain
    from elmokit.core.formatting import format_duration
    from elmokit.core.model_folder import OUTDATED
    from elmokit.training.processes import launch, own_place

    rank, size = own_place()
    if processes > 1 and size == 1:
        raise typer.Exit(launch(processes))
    settings |= {"valid": valid or (), "from_model": from_model, "words_from": words_from, "corpus": corpus}
    settings |= {"checkpoint_every": checkpoint_every, "command": options.command_line()}
    result = pretrain(texts, out, preset, reporter=reporter, **settings)
    if rank > 0:
        reporter = Reporter("silent")
    record = asdict(result)
    del record["was_done"]
    reporter.event("end", **{**record, "folder": str(out), "seconds": round(result.seconds, 1)})
    ending = "Already done." if result.was_done else _ENDINGS[result.stopped]
    reporter.say(
        f"[bold green]{ending}[/] {result.n_steps:,} steps, {result.n_words:,} words "
        f"in {format_duration(result.seconds)} ({result.n_words / max(result.seconds, 1e-9):,.0f} words/s)."
    )
    if result.held_out:
        reporter.say(
            f"Held-out perplexity [bold]{result.held_out['perplexity']:,.2f}[/] "
            f"(forward {result.held_out['forward']:,.2f}, backward {result.held_out['backward']:,.2f}; "
            f"exact, over all words)."
        )
    place = f"[bold]{escape(str(out))}[/]"
    if result.stopped == "interrupted":
        model = "the old model is still" if (out / OUTDATED).exists() else "the model so far is"
        reporter.say(f"Saved. Run the same command to resume; {model} in {place}.")
        raise typer.Exit(130)
    reporter.say(f"The model is in {place}. Look at it with: {options.next_command('inspect', out)}")
