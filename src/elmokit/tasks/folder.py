"""A classifier as a folder: ``config.json``, ``model.safetensors`` (mix and head), ``encoder/`` (a
whole folder of its own, fine-tuned or as it was), ``README.md``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import elmokit
from elmokit.core.atomic import explain_os_errors, write_text
from elmokit.core.errors import ConfigError, ModelError
from elmokit.core.model_folder import FORMAT, FORMAT_VERSION, read_record
from elmokit.core.names import resolve_name
from elmokit.core.tensors import check_tensors, load_tensors, save_tensors
from elmokit.tasks.encoders import load_encoder, save_encoder
from elmokit.tasks.model import Network, TextClassifier
from elmokit.tasks.settings import ClassifierConfig

__all__ = ["classifier_card", "load_classifier", "save_classifier"]

_FRESH = "The files are damaged or do not belong together; take a fresh copy of the folder."


def save_classifier(folder: str | Path, classifier: TextClassifier) -> None:
    """Write a classifier into ``folder``; ``config.json`` goes first and comes last, so a folder that
    was cut short is never taken for a model."""
    folder = Path(folder)
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").unlink(missing_ok=True)
    save_encoder(folder / "encoder", classifier.encoder)
    save_tensors(folder / "model.safetensors", dict(classifier.network.named_parameters()), {})
    write_text(folder / "README.md", classifier_card(folder.resolve().name, classifier))
    record = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": "classifier",
        "elmokit_version": elmokit.__version__,
        "classes": classifier.classes,
        "multilabel": classifier.multilabel,
        "settings": classifier.network.config.to_dict(),
        "record": classifier.record,
    }
    write_text(folder / "config.json", json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def load_classifier(folder: str | Path) -> TextClassifier:
    """Read a classifier folder. Anything missing, damaged, foreign or of the wrong shape is an error
    that says which file and why."""
    folder = resolve_name(folder)
    record = read_record(folder, "classifier")
    try:
        config = ClassifierConfig.from_dict(record["settings"])
        classes = [str(name) for name in record["classes"]]
        multilabel, made = bool(record["multilabel"]), dict(record["record"])
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise ModelError(f"{folder / 'config.json'} is damaged: {error}", remedy=_FRESH) from error
    if not (folder / "encoder" / "config.json").exists():
        raise ModelError(
            f"{folder} holds a classifier without its encoder: the folder {folder / 'encoder'} is missing.",
            remedy="Copy the whole folder, encoder included, from where it was fitted.",
        )
    encoder = load_encoder(folder / "encoder")
    if len(set(classes)) != len(classes):
        raise ModelError(f"{folder / 'config.json'} is damaged: it names a class twice.", remedy=_FRESH)
    try:
        with torch.device("meta"):
            network = Network(config, encoder.n_layers, encoder.dim, len(classes))
    except (RuntimeError, ConfigError) as error:  # sizes that no tensor can have
        raise ModelError(f"{folder / 'config.json'} is damaged: {error}", remedy=_FRESH) from error
    tensors, _ = load_tensors(folder / "model.safetensors")
    check_tensors(folder / "model.safetensors", dict(network.named_parameters()), tensors)
    network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
    network.eval()
    return TextClassifier(encoder, network, classes, multilabel, made)


def classifier_card(name: str, classifier: TextClassifier) -> str:
    """The classifier's README.md."""
    config, record = classifier.network.config, classifier.record
    shown = ", ".join(classifier.classes[:20]) + (", …" if len(classifier.classes) > 20 else "")
    rows: list[tuple[str, Any]] = [
        ("classes", f"{len(classifier.classes)}: {_plain(shown)}"),
        ("encoder", f"{'fine-tuned' if config.fit.finetune else 'frozen'}, in `encoder/`"),
        ("mix", config.mix.mix),
        ("head", config.head.head),
    ]
    for split, figures in record.get("splits", {}).items():
        rows.append((f"accuracy ({split}, {figures['n']:,} rows)", f"{figures['accuracy']:.4f}"))
    for label, key in (("date", "date"), ("made by", "command")):
        if record.get(key):
            rows.append((label, f"`{_plain(str(record[key]))}`"))
    table = "\n".join(f"| {label} | {value} |" for label, value in rows)
    return (
        f"# {name}\n\nA text classifier made with elmokit {elmokit.__version__}.\n\n"
        f"| | |\n|---|---|\n{table}\n\n"
        "Use it with `elmokit predict` or, in Python, `elmokit.ElmoClassifier.load`. "
        "`report.html`, where there is one, shows how good it is.\n"
    )


def _plain(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
