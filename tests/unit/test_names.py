"""What a model's name stands for: bundled, a folder, on a hub (a local stand-in); and smaller folders."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit import Elmo
from elmokit.bilm.folder import load_bilm
from elmokit.core import names
from elmokit.core.errors import ModelError
from elmokit.core.names import bundled_names, resolve_name
from elmokit.published.convert import convert
from elmokit.tasks.model import load_encoder
from program import Cli

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TEXT = ["The old fox ran home.", "Nobody reads the company's letters."]


@pytest.fixture
def shelf(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of bundled models with one of them, ``pocket``."""
    convert(tiny_model, tmp_path / "models" / "pocket", compact=True)
    monkeypatch.setattr(names, "MODELS", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "models"


def test_a_bundled_name_comes_before_a_folder_and_a_path_is_always_a_folder(
    shelf: Path, tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_model, tmp_path / "pocket")
    assert bundled_names() == ["pocket"]
    assert resolve_name("pocket") == shelf / "pocket"
    assert resolve_name("./pocket") == Path("pocket") == resolve_name(Path("pocket"))
    assert Elmo.load("pocket").fingerprint == load_encoder("pocket").fingerprint
    assert Elmo.load("pocket").fingerprint != Elmo.load("./pocket").fingerprint


def test_a_name_that_leads_nowhere_says_what_there_is(shelf: Path, cli: Cli) -> None:
    for name, hint in (("nothing", "Choose from: pocket"), ("Pocket", "Did you mean 'pocket'")):
        with pytest.raises(ModelError, match=rf"There is no model folder {name}(.|\n)*{hint}"):
            Elmo.load(name)
    with pytest.raises(ModelError, match="There is no model folder x"):  # too long for a file
        resolve_name("x" * 5000)
    cli("inspect", "nothing").check_refused("There is no model folder nothing", "pocket")
    assert cli("inspect", "pocket").code == 0


@pytest.mark.parametrize("file", ["model.safetensors", "vocab.txt"])
def test_a_damaged_bundled_model_is_refused(shelf: Path, file: str) -> None:
    path = shelf / "pocket" / file
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=f"{file} is damaged(.|\n)*Install elmokit again"):
        Elmo.load("pocket")
    path.unlink()
    with pytest.raises(ModelError, match=f"{file} cannot be read: No such file"):
        Elmo.load("pocket")


def test_a_compact_folder_gives_the_same_vectors_to_half_precision_and_is_small(
    tiny_model: Path, tmp_path: Path
) -> None:
    made = convert(tiny_model, tmp_path / "small", compact=True)
    whole, small = Elmo.load(tiny_model), Elmo.load(tmp_path / "small")
    np.testing.assert_allclose(whole.embed(TEXT).flat, small.embed(TEXT).flat, atol=2e-3)
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (tiny_model, tmp_path / "small")]
    assert sizes[1] < sizes[0] / 2
    assert made.n_parameters == sum(parameter.numel() for parameter in small.model.parameters())
    assert load_bilm(tmp_path / "small").training == load_bilm(tiny_model).training
    again = convert(tmp_path / "small", tmp_path / "again", compact=True)
    assert Elmo.load(again.path).fingerprint == small.fingerprint
    with pytest.raises(ModelError, match="no word predictor"):
        small.model.predictor.exact_loss(torch.zeros(1, 8), torch.zeros(1, dtype=torch.long))


class _Hub(http.server.BaseHTTPRequestHandler):
    """As much of a model hub as a download asks for, over one folder."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self.folder = folder
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        """The same without a body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Facts about the model, the list of its files, or one of them."""
        path = self.path.partition("?")[0]
        files = sorted(self.folder.iterdir())
        if path.startswith("/api/models/acme/pocket/tree/"):
            listed = [
                {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": _mark(file)}
                for file in files
            ]
            self._answer(json.dumps(listed).encode())
        elif path == "/api/models/acme/pocket" or path.startswith("/api/models/acme/pocket/revision/"):
            siblings = [{"rfilename": file.name} for file in files]
            self._answer(json.dumps({"id": "acme/pocket", "sha": COMMIT, "siblings": siblings}).encode())
        elif path.startswith(f"/acme/pocket/resolve/{COMMIT}/"):
            file = self.folder / Path(path).name
            self._answer(file.read_bytes(), {"ETag": f'"{_mark(file)}"', "X-Repo-Commit": COMMIT})
        else:
            self._answer(b"{}", {"X-Error-Code": "RepoNotFound"}, 404)

    def _answer(self, body: bytes, headers: dict[str, str] | None = None, code: int = 200) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _mark(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()


@pytest.fixture
def hub(tiny_model: Path, tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A stand-in for a hub: the folder of its one model, and the environment of a program that uses it."""
    folder = tmp_path / "on-the-hub"
    convert(tiny_model, folder, compact=True)
    (folder / "evil.pkl").write_bytes(b"\x80\x04.")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Hub, folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield (
        folder,
        {
            **{key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")},
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        },
    )
    server.shutdown()
    server.server_close()


def _load(name: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; from elmokit.core.names import resolve_name; from elmokit import Elmo, ElmokitError\n"
        "try:\n"
        "    where = resolve_name(sys.argv[1])\n"
        "    print(Elmo.load(sys.argv[1]).fingerprint, *sorted(p.name for p in where.iterdir()))\n"
        "except ElmokitError as error:\n"
        "    sys.exit(str(error))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, name], env=environment, capture_output=True, text=True, check=False
    )


def test_a_model_on_a_hub_is_downloaded_once_and_checked(hub: tuple[Path, dict[str, str]]) -> None:
    folder, environment = hub
    done = _load("hub:acme/pocket", environment)
    assert done.returncode == 0, done.stderr
    fingerprint, *files = done.stdout.split()
    assert fingerprint == Elmo.load(folder).fingerprint
    assert "evil.pkl" not in files
    assert "model.safetensors" in files
    offline = {**environment, "HF_HUB_OFFLINE": "1"}
    assert _load("hub:acme/pocket", offline).stdout == done.stdout
    missing = _load("hub:acme/other", offline)
    assert missing.returncode == 1
    assert "not on this machine, and the hub cannot be reached" in missing.stderr
    unknown = _load("hub:acme/other", environment)
    assert "The hub has no model acme/other" in unknown.stderr


def test_a_model_that_is_damaged_on_its_way_is_refused(hub: tuple[Path, dict[str, str]]) -> None:
    folder, environment = hub
    with open(folder / "vocab.txt", "a", encoding="utf-8") as file:
        file.write("intruder\n")
    done = _load(f"hub:acme/pocket@{COMMIT}", environment)
    assert done.returncode == 1
    assert "vocab.txt is damaged: its checksum does not match config.json." in done.stderr


@pytest.mark.parametrize("name", ["hub:", "hub:pocket", "hub:a/b/c", "hub:a/"])
def test_a_hub_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="is not the name of a model on a hub"):
        resolve_name(name)


def test_whatever_the_network_does_is_an_error_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def broken(*_: object, **__: object) -> str:
        raise RuntimeError("proxy error\nat some length")

    monkeypatch.setattr(hub, "snapshot_download", broken)
    with pytest.raises(ModelError, match=r"cannot be reached \(proxy error\)"):
        resolve_name("hub:someone/model")


def test_the_module_is_the_program() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "elmokit", "--help"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0
    assert "pretrain" in found.stdout
