"""The report of ``pretrain``: loss, perplexity and next-word accuracy on held-out text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from elmokit.bilm.perplexity import FEW_WORDS
from elmokit.core.formatting import format_value, plural
from elmokit.report.document import Document, Fact, Figure, Section, Table, make_list, make_table
from elmokit.report.figures import Line, draw_lines
from elmokit.report.render import write_report
from elmokit.text.corpus import Corpus, Documents
from elmokit.training.loop import MetricsLog, TrainingResult


def held_out_warning(n_words: int) -> str:
    """A warning if little text is held out, or ""."""
    if n_words >= FEW_WORDS:
        return ""
    if not n_words:
        return "Nothing is held out, so no perplexity is measured; add --valid FILE."
    problem = f"Only {n_words:,} words are held out, so the perplexity is a rough estimate."
    return f"{problem} Add --valid FILE or more text."


def write_pretrain_report(
    out: Path,
    result: TrainingResult,
    corpus: Corpus,
    valid: Documents,
    perplexity: Mapping[str, float],
    accuracy: Mapping[str, tuple[float, float]],
    staged: Path,
) -> None:
    """Write the report of the finished run in ``out`` to the staging folder of its model.

    ``perplexity`` is that of the weights that are kept, empty if nothing is held out; ``accuracy`` the shares
    of words that are the first, and among the first five, of those predicted. Both are by direction.
    """
    text = Section("text", "Text", "", (make_list(text_rows(corpus, valid)),))
    sections, facts = [_training_section(out, result), text], []
    if perplexity:
        facts = [Fact("Perplexity", f"{perplexity['perplexity']:,.1f}", "on held-out text")]
        facts += [Fact("Top 1", f"{top_1:.1%}", f"{name} words") for name, (top_1, _) in accuracy.items()]
        rows = [
            [name, f"{perplexity[name]:,.2f}", f"{top_1:.1%}", f"{top_5:.1%}"]
            for name, (top_1, top_5) in accuracy.items()
        ]
        about = "Top 1, top 5: how often the next word is predicted first, or among the first five."
        table = make_table(["Direction", "Perplexity", "Top 1", "Top 5"], rows)
        sections.insert(0, Section("scores", "Held-out text", about, (table,)))
    title = f"Language model {out.resolve().name}"
    notes = tuple(filter(None, [held_out_warning(valid.n_words)]))
    context = f"{result.position.step:,} steps over {corpus.n_words:,} words."
    unknown_share = valid.unknown_share(corpus.n_vocabulary)
    record = {
        "title": title,
        "perplexity": perplexity,
        "accuracy": accuracy,
        "held_out": {"n_texts": len(valid), "n_words": valid.n_words, "unknown_share": unknown_share},
        "history": result.position.history,
        "notes": notes,
    }
    write_report(staged, Document(title, "", tuple(sections), tuple(facts), notes, context), record)


def _training_section(out: Path, result: TrainingResult) -> Section:
    items: list[Table | Figure] = []
    if losses := MetricsLog.losses(out / "run" / "metrics.jsonl"):
        loss = Line("loss", [step for step, _ in losses], [loss for _, loss in losses])
        items.append(draw_lines([loss], x_label="step", caption="Training loss (nats per word)"))
    if history := result.position.history:
        x, names = [entry["step"] for entry in history], ("forward", "backward")
        curves = [Line(name, x, [entry[name] for entry in history]) for name in names]
        items.append(draw_lines(curves, x_label="step", caption="Held-out perplexity"))
        rows = [[format_value(value) for value in entry.values()] for entry in history]
        items.append(make_table(history[-1], rows, caption="Every evaluation", folded=True))
    return Section("training", "Training", "", tuple(items))


def text_rows(corpus: Corpus, valid: Documents) -> list[tuple[str, str]]:
    """The size of a text, and of what is held out of it."""
    unknown_share = valid.unknown_share(corpus.n_vocabulary)
    rows = [
        ("words", f"{corpus.n_words:,} in {plural(len(corpus.train), 'text')}, {corpus.n_types:,} distinct"),
        ("predicted words", f"{corpus.n_vocabulary:,}; {corpus.unknown_share:.2%} of the text is <unk>"),
        ("evaluated", f"{valid.n_words:,} words in {plural(len(valid), 'text')}; {unknown_share:.2%} <unk>"),
    ]
    return rows + ([("left out", f"{corpus.n_empty:,} texts without a word")] if corpus.n_empty else [])
