"""What ``pretrain --from`` on unlabeled text of a field brings there, and what it costs elsewhere.

    python benchmarks/adapt.py --work adapt [--model english] [--minutes 20] [--draws 5]
    python benchmarks/adapt.py --work adapt --full FOLDER --original FILE       perplexity on its own text

The model is adapted to IMDB's reviews without labels, to the training texts of AG News and to those of
Reuters, each for so many minutes. Then accuracy with 500 labels before and after, by logistic regression on
the frozen mean vector alone ("mean") and by ``fit`` without flags ("stack"): IMDB and sentence polarity, AG
News, Reuters. With ``--full``, a folder with its softmax (the bundled one has none) is adapted instead, and
its exact perplexity on held-out text of the kind it was made from is taken before and after.

A stopped run resumes: so does the adaptation itself, and every draw is one line of WORK/results.jsonl.
Data is found through ELMOKIT_DATA.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from elmokit import pretrain
from elmokit.bilm.perplexity import text_perplexity
from elmokit.core.console import Reporter
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.neighbors import unit_rows
from few_labels import SETS, Draw, draw, measure, read_results
from measuring import data_file, finish

N_LABELS = 500
SHOWN = ("mean", "stack")


def imdb() -> Iterator[str]:
    """The reviews without a label."""
    with gzip.open(data_file("imdb/unsup.jsonl.gz"), "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)["text"].replace("<br />", " ")


def ag_news() -> Iterator[str]:
    """The training texts."""
    yield from (text for text, _ in SETS["ag-news"](None).train)


def reuters() -> Iterator[str]:
    """All articles that are not in the test set, with or without topics."""
    with gzip.open(data_file("reuters21578/reuters21578.jsonl.gz"), "rt", encoding="utf-8") as file:
        for article in map(json.loads, file):
            if article["lewissplit"] != "TEST":
                yield f"{article['title']} {article['body']}"


FIELDS: dict[str, tuple[Callable[[], Iterator[str]], tuple[str, ...]]] = {
    "imdb": (imdb, ("polarity", "imdb")),
    "ag-news": (ag_news, ("ag-news",)),
    "reuters": (reuters, ("reuters",)),
}


def adapt(options: argparse.Namespace, field: str) -> Path:
    """The adapted model; it is made, or goes on, unless it is there."""
    text = options.work / f"{field}.txt"
    if not text.exists():
        lines = [" ".join(line.split()) for line in FIELDS[field][0]()][: options.texts]
        text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    out: Path = options.work / f"{field}-{'full' if options.full else 'model'}"
    model, limit = options.full or options.model, 60.0 * options.minutes
    result = pretrain(
        text, out, from_model=model, max_time=limit, reporter=Reporter(), **dict(options.settings)
    )
    print(field, result.held_out, f"{result.seconds:.0f} s", flush=True)
    return out


def mean_accuracy(one: Draw, encoder: str) -> float:
    """Logistic regression on the frozen mean vector of all layers, in percent."""
    elmo = Elmo.load(encoder)

    def vectors(texts: list[str]) -> npt.NDArray[np.float64]:
        return unit_rows(np.concatenate([part.sentence("mean") for part in elmo.chunks(texts)]))

    head = LogisticRegression(C=30.0, max_iter=2000).fit(vectors(one.texts), one.labels)
    return round(100 * float((head.predict(vectors(one.test)) == one.truth).mean()), 2)


def run(options: argparse.Namespace, results: Path) -> None:
    """All adaptations and all draws that the result file does not have yet."""
    done = {(line["set"], line["draw"], line["encoder"]) for line in read_results(results)}
    for field in options.fields.split(","):
        adapted = str(adapt(options, field))
        for name in FIELDS[field][1]:
            rows = SETS[name](None)
            for number in range(options.draws):
                one = draw(rows, N_LABELS, number, valid=options.valid)
                for label, encoder in (("before", options.model), ("after", adapted)):
                    if one is None or (name, number, label) in done:
                        continue
                    line = {"set": name, "draw": number, "encoder": label, **measure(one, encoder)}
                    line["scores"]["mean"] = mean_accuracy(one, encoder)
                    with open(results, "a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                    print(name, number, label, line["scores"], flush=True)


def table(results: Path) -> dict[str, Any]:
    """Mean accuracy before and after, and the standard error of the paired differences."""
    lines, figures = read_results(results), {}
    for name in dict.fromkeys(line["set"] for line in lines):
        for view in SHOWN:
            before, after = (
                {
                    line["draw"]: line["scores"][view]
                    for line in lines
                    if (line["set"], line["encoder"]) == key
                }
                for key in ((name, "before"), (name, "after"))
            )
            gains = [after[number] - before[number] for number in after if number in before]
            if not gains:
                continue
            error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
            means = [statistics.fmean(part.values()) for part in (before, after)]
            figures[f"{name}, {view}"] = [round(mean, 2) for mean in means]
            gain = statistics.fmean(gains)
            print(f"{name:10} {view:8} {means[0]:.2f} -> {means[1]:.2f}  {gain:+.2f} ± {error:.2f}")
    return figures


def forgetting(options: argparse.Namespace) -> dict[str, Any]:
    """Perplexity of the original text, before and after each adaptation."""
    figures = {"before": text_perplexity(options.full, [options.original]).perplexity}
    for field in options.fields.split(","):
        figures[field] = text_perplexity(adapt(options, field), [options.original]).perplexity
        print(f"{field}: {figures['before']:.1f} -> {figures[field]:.1f}", flush=True)
    return figures


def main() -> None:
    """Adapt and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("adapt"), help="where everything is kept")
    parser.add_argument("--model", default="english")
    parser.add_argument("--minutes", type=float, default=20.0, help="of training for each adaptation")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--fields", default=",".join(FIELDS))
    parser.add_argument("--texts", type=int, help="of each field; all by default")
    parser.add_argument("--valid", action="store_true", help="measure on held-out training rows")
    parser.add_argument("--full", type=Path, help="a folder with its softmax")
    parser.add_argument("--original", type=Path, help="held-out text of the kind that --full was made from")
    parser.add_argument("--lr", dest="settings", action="append", default=[], type=lambda x: ("lr", float(x)))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    results = options.work / "results.jsonl"
    if options.full:
        finish(forgetting(options))
        return
    run(options, results)
    finish(table(results))


if __name__ == "__main__":
    main()
