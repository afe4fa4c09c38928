"""How fast ``Elmo.embed`` is beside the plain way of doing the same sums, and what kept layers save.

The plain way takes texts in the given order, 32 at a time, pads to the longest, sends every token through
the character CNN, and leaves autograd on. Both give the same vectors (checked). Then: a frozen encoder's
fit with kept layers beside one that computes them in every epoch; and int8 LSTM layers beside fp32 ones.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import tempfile
import warnings
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from elmokit.bilm.folder import BilmFolder, load_bilm
from elmokit.bilm.pretrain import pretrain
from elmokit.bilm.settings import resolve
from elmokit.bilm.token_encoder import CharacterEncoder, CharacterFilter, Highway
from elmokit.tasks.settings import ClassifierConfig
from elmokit.tasks.task import Examples, Labels, get_task
from elmokit.tasks.trainer import fit_task
from elmokit.text.settings import ReadConfig
from elmokit.vectors.elmo import Elmo
from measuring import data_file, finish, seconds

_BATCH = 32


def character_vectors(encoder: CharacterEncoder, chars: Tensor) -> Tensor:
    """The character CNN as a convolution over every token, (tokens, length) -> (tokens, dim)."""
    table = torch.cat([encoder.weight.new_zeros(1, encoder.weight.shape[1]), encoder.weight[1:]])
    x = F.embedding(chars, table).transpose(1, 2)  # (tokens, char_dim, length)
    parts = []
    for module in encoder.filters:
        filters = cast(CharacterFilter, module)
        parts.append(F.conv1d(x, filters.weight.permute(2, 1, 0), filters.bias).amax(dim=2))
    y = encoder.activation(torch.cat(parts, dim=1))
    for highway in encoder.highways:
        y = cast(Highway, highway)(y)
    return y if encoder.projection is None else encoder.projection(y)


def plain_embed(folder: BilmFolder, words: list[list[str]]) -> list[Tensor]:
    """All layers of every text, (n_words, layer, dim) each, the plain way."""
    found: list[Tensor] = []
    model = folder.model
    for first in range(0, len(words), _BATCH):
        batch = [["<s>", *row, "</s>"] for row in words[first : first + _BATCH]]
        longest = max(map(len, batch))
        padded = [word for row in batch for word in [*row, *["<pad>"] * (longest - len(row))]]
        chars = torch.from_numpy(folder.features.rows(padded).astype(np.int64))
        vectors = character_vectors(cast(CharacterEncoder, model.encoder), chars)
        index = torch.arange(len(padded)).view(len(batch), longest)
        lengths = torch.tensor([len(row) for row in batch])
        layers = model.run(vectors, index, lengths).stacked()
        found += [layers[place, 1 : len(row) - 1] for place, row in enumerate(batch)]
    return found


def speed(folder: BilmFolder, texts: list[str], repeats: int) -> dict[str, float]:
    """Tokens a second, both ways, alternated; and the time for one sentence."""
    words = Elmo(folder).words(texts)
    n_words = sum(map(len, words))
    few = words[: 4 * _BATCH]
    ours, plain = Elmo(folder).embed(few).layers, plain_embed(folder, few)
    worst = max(
        float(np.abs(a - b.detach().numpy()).max(initial=0)) for a, b in zip(ours, plain, strict=True)
    )
    print(f"largest difference of the two ways: {worst:.1e}")
    best = {"ours": float("inf"), "plain": float("inf")}
    for _ in range(repeats):
        best["ours"] = min(
            best["ours"], seconds(lambda: Elmo(folder).embed(texts))
        )  # from raw text, cold cache
        best["plain"] = min(best["plain"], seconds(lambda: plain_embed(folder, words)))
    elmo = Elmo(folder)
    elmo.embed(texts[:200])
    single = sorted(seconds(lambda text=text: elmo.embed([text])) for text in texts[:200])  # type: ignore[misc]
    alone = sorted(seconds(lambda row=row: plain_embed(folder, [row])) for row in words[:200])  # type: ignore[misc]
    figures = {
        "words": n_words,
        "embed_words_per_second": n_words / best["ours"],
        "plain_words_per_second": n_words / best["plain"],
        "ratio": best["plain"] / best["ours"],
        "one_sentence_ms": 1000 * single[len(single) // 2],
        "one_sentence_plain_ms": 1000 * alone[len(alone) // 2],
        "largest_difference": worst,
    }
    print(
        f"embed: {figures['embed_words_per_second']:,.0f} words/s, plain: "
        f"{figures['plain_words_per_second']:,.0f} words/s, ratio {figures['ratio']:.1f}; one sentence "
        f"(median): {figures['one_sentence_ms']:.1f} ms, plain {figures['one_sentence_plain_ms']:.1f} ms"
    )
    return figures


def kept_layers(folder: BilmFolder, texts: list[str], labels: list[str], repeats: int) -> dict[str, float]:
    """Five epochs of a pool head over a frozen encoder, with kept layers and without."""
    classes = sorted(set(labels))
    values = np.array([classes.index(label) for label in labels])
    examples = Examples([(text,) for text in texts], values, Labels(tuple(classes)))
    train, valid = np.split(np.arange(len(texts)), [len(texts) * 9 // 10])
    best = {"yes": float("inf"), "no": float("inf")}
    for _ in range(repeats):
        for cache in best:
            config = ClassifierConfig.from_flat(epochs=5, cache=cache)
            took = seconds(
                lambda config=config: fit_task(  # type: ignore[misc]
                    get_task("classify"),
                    Elmo(folder),
                    examples.select(train),
                    examples.select(valid),
                    config,
                )
            )
            best[cache] = min(best[cache], took)
    print(f"frozen fit, 5 epochs: kept layers {best['yes']:.1f} s, computed anew {best['no']:.1f} s", end="")
    print(f", ratio {best['no'] / best['yes']:.1f}")
    return {"kept_seconds": best["yes"], "anew_seconds": best["no"], "kept_ratio": best["no"] / best["yes"]}


def quantised(dim: int, repeats: int) -> dict[str, float]:
    """A 2-layer LSTM in int8 (dynamic quantisation) beside fp32, 64 texts of 40 words."""
    try:
        from torch.ao.quantization import quantize_dynamic
    except ImportError:
        print("int8: this torch has no dynamic quantisation")
        return {}
    lstm = torch.nn.LSTM(dim, dim, 2).eval()
    try:
        with warnings.catch_warnings():  # torch says that it will move elsewhere
            warnings.simplefilter("ignore")
            # Only what a module holds is quantised, never the module itself.
            small = quantize_dynamic(torch.nn.ModuleList([lstm]), {torch.nn.LSTM}, dtype=torch.qint8)[0]
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        print(f"int8: not to be had here ({error})")
        return {}
    x = torch.randn(40, 64, dim)
    with torch.inference_mode():
        for model in (lstm, small):
            model(x)
        pairs = [(seconds(lambda: lstm(x)), seconds(lambda: small(x))) for _ in range(10 * repeats)]
        drift = float((lstm(x)[0] - small(x)[0]).abs().max())
    full, less = min(a for a, _ in pairs), min(b for _, b in pairs)
    print(f"int8 LSTM, {dim} wide: {full / less:.2f} times the speed of fp32, largest difference {drift:.3f}")
    return {"int8_ratio": full / less, "int8_difference": drift}


def main() -> None:
    """Measure it all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--texts", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    file = data_file("ag_news/test.csv.gz")
    with gzip.open(file, "rt", encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))[: arguments.texts]
    texts, labels = [f"{title} {text}" for _, title, text in rows], [label for label, _, _ in rows]
    with tempfile.TemporaryDirectory() as work:
        # Speed does not depend on what was learnt: one step of the `small` preset gives its shape.
        pretrain(
            [file],
            Path(work) / "m",
            resolve("small", {"training": {"max_steps": 1, "held_out": 0.0}}),
            read=ReadConfig(text_columns="2,3"),
        )
        folder = load_bilm(Path(work) / "m")
        figures = speed(folder, texts, arguments.repeats)
        figures |= kept_layers(folder, texts, labels, max(1, arguments.repeats - 1))
        figures |= quantised(folder.model.config.dim, arguments.repeats)
    finish(figures)


if __name__ == "__main__":
    main()
