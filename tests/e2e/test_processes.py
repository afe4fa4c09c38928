"""Several processes train one model: the same curve as one, killed, slow, full disks, and bad input."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from test_resume import COMMON, WORDS, assert_same_outcome

from elmokit.bilm.pretrain import pretrain
from elmokit.core.errors import ConfigError, RunError
from elmokit.training import processes
from elmokit.training.processes import Processes
from program import Cli, Start, environment, in_its_own_process, n_metrics, small_disk, wait_for_more

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks up processes in /proc")
SETTINGS = [*COMMON, "--set=hidden_dim=8", "--set=n_lanes=5", "--epochs=4"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(5)
    lines = (" ".join(rng.choices(WORDS.split(), k=rng.randint(3, 12))) + "." for _ in range(140))
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def alone(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Undisturbed runs in one and in two processes."""
    home = tmp_path_factory.mktemp("alone")
    for n in (1, 2):
        in_its_own_process(
            "pretrain", text, *SETTINGS, "--processes", str(n), "--out", home / str(n)
        ).check_fine()
    return {n: home / str(n) for n in (1, 2)}


def losses(out: Path) -> list[float]:
    """Training losses and held-out perplexities in the order of the run."""
    lines = map(json.loads, (out / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line.get("loss", line.get("perplexity")) for line in lines]


def ranks(launcher: subprocess.Popen[str]) -> dict[int, int]:
    """The process of each rank."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text(encoding="utf-8").split()
    found: dict[int, int] = {}
    for child in children:
        pairs = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        found |= {int(pair[5:]): int(child) for pair in pairs if pair.startswith(b"RANK=")}
    return found


def test_two_processes_have_the_loss_curve_of_one(alone: dict[int, Path]) -> None:
    assert losses(alone[2]) == pytest.approx(losses(alone[1]), rel=1e-4)


def test_torchrun_and_parts_of_steps_change_no_more_than_rounding(
    text: Path, alone: dict[int, Path], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    out = ["--set=accumulate=3", "--out", tmp_path / "out"]
    words = [*command, "-m", "elmokit", "pretrain", text, *SETTINGS, *out]
    done = subprocess.run([*map(str, words)], capture_output=True, timeout=100, env=environment())
    assert done.returncode == 0, done.stderr.decode()
    assert losses(tmp_path / "out") == pytest.approx(losses(alone[1]), rel=1e-4)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_ends_the_run_and_the_same_command_resumes(
    rank: int, text: Path, alone: dict[int, Path], start: Start, tmp_path: Path
) -> None:
    words = ["pretrain", str(text), *SETTINGS, "--out", str(tmp_path / "out")]
    launcher = start(*words, "--processes", "2")
    assert wait_for_more(launcher, lambda: n_metrics(tmp_path / "out"), 30)
    os.kill(ranks(launcher)[rank], signal.SIGKILL)
    killed = time.monotonic()
    said, _ = launcher.communicate()
    assert time.monotonic() - killed < 15
    assert launcher.returncode == 2, said
    assert f"Process {rank + 1} of 2 was killed (SIGKILL)" in said
    assert "Run the same command again" in said
    other = (
        ["--processes", "2"] if rank else []
    )  # with another number, the same curve; with the same, its bits
    in_its_own_process(*words, *other).check_fine("Resuming from step", "Done.")
    assert losses(tmp_path / "out") == pytest.approx(losses(alone[2]), rel=1e-4)
    if rank:
        assert_same_outcome(tmp_path / "out", alone[2])


def test_an_interrupted_run_with_a_slow_process_is_saved(text: Path, start: Start, tmp_path: Path) -> None:
    out = tmp_path / "out"
    launcher = start("pretrain", text, *SETTINGS, "--epochs=200", "--processes", "2", "--out", out)
    assert wait_for_more(launcher, lambda: n_metrics(out), 3)
    slow = ranks(launcher)[1]
    os.kill(slow, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(slow, signal.SIGCONT)
    n_before = n_metrics(out)
    assert wait_for_more(launcher, lambda: n_metrics(out), n_before)
    launcher.terminate()
    said, _ = launcher.communicate()
    assert launcher.returncode == 130, said
    assert "Run the same command to resume" in said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_processes_end_with_the_one_that_started_them(
    number: signal.Signals, code: int, text: Path, start: Start, tmp_path: Path
) -> None:
    launcher = start(
        "pretrain", text, *SETTINGS, "--epochs=200", "--processes", "2", "--out", tmp_path / "out"
    )
    assert wait_for_more(launcher, lambda: n_metrics(tmp_path / "out"), 3)
    started = ranks(launcher).values()
    launcher.send_signal(number)
    launcher.communicate(timeout=60)  # also waits for the first process, which shares its output
    assert launcher.returncode == code
    for _ in range(600):
        if not any(map(is_running, started)):
            break
        time.sleep(0.1)
    assert not any(map(is_running, started))


def is_running(process: int) -> bool:
    """Whether it has not ended; one that nobody has waited for has no command line any more."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/cmdline").read_bytes() != b""
    return False


def test_a_process_whose_others_do_not_come_says_so_and_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("elmokit.training.processes._JOINING", timedelta(seconds=1))
    monkeypatch.setattr("elmokit.training.processes._LATE", 0.1)
    said: list[str] = []
    with (
        pytest.raises(RunError, match=f"cannot be reached: [^!]*they meet at 127.0.0.1:{port}"),
        Processes.join(said.append),
    ):
        pass
    assert said == [f"Process 1 of 2 waits for the others at 127.0.0.1:{port}."]


GRADIENTS = """
import torch
from torch import nn
from torch.nn import functional as F
from elmokit.training.processes import Processes

with Processes.join() as processes:
    one, two, dense, some, none = parameters = [nn.Parameter(torch.ones(6, 2)) for _ in range(5)]
    named = dict(zip("abcde", parameters))
    for step in range(2):
        for parameter in parameters:
            parameter.grad = None
        words = torch.tensor([[0, 3, 0], [3]][processes.rank])
        (F.embedding(words, one, sparse=True).sum() + 3 * dense.sum()).backward()
        if processes.rank:  # the other has no gradient, as without a stream
            (F.embedding(words, two, sparse=True).sum() + some.sum()).backward()
        assert processes.add_gradients(named, [0.5, float(processes.rank)]) == [1.0, 1.0]
        assert one.grad.to_dense()[:, 0].tolist() == [2, 0, 0, 2, 0, 0]
        assert two.grad.to_dense()[:, 1].tolist() == [0, 0, 0, 1, 0, 0]
        assert dense.grad[0].tolist() == [6, 6] and some.grad[0].tolist() == [1, 1] and none.grad is None
    rows = processes.join_streams({"h": torch.full((3 * processes.rank, 2), 7.0)})
    assert rows["h"].tolist() == [[7, 7]] * 3
"""


def test_gradients_of_all_processes_are_summed_also_where_one_has_none() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    place = {**environment(), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-c", GRADIENTS]
    started = [subprocess.Popen(command, env={**place, "RANK": rank}) for rank in "01"]
    assert [process.wait(100) for process in started] == [0, 0]


def test_connections_to_machines_that_vanish_are_closed() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        processes._watch_connections()
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert 10_000 <= one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 120_000
        one.sendall(b"still open")


def test_variables_that_are_not_of_torchrun_are_refused(
    cli: Cli, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank, size in (("0", "two"), ("2", "2"), ("-1", "2")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", size)
        cli("pretrain", text, "--out", tmp_path / "out").check_refused(f"WORLD_SIZE={size}")


def test_a_full_disk_ends_all_processes(text: Path, start: Start, tmp_path: Path) -> None:
    with small_disk(60_000):
        launcher = start("pretrain", text, *SETTINGS, "--processes", "2", "--out", tmp_path / "out")
    said, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 2, said
    assert "error: Cannot write" in said
    assert "the disk is full" in said


@pytest.mark.parametrize(
    ("n_processes", "texts", "problem"), [(7, None, "cannot share out 5 streams"), (2, "-", "standard input")]
)
def test_what_processes_cannot_do_is_refused(
    n_processes: int,
    texts: str | None,
    problem: str,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several = contextlib.nullcontext(Processes(0, n_processes))
    monkeypatch.setattr(Processes, "join", lambda *_: several)
    for name, result in {"in_turn": [0], "require_same": None}.items():
        monkeypatch.setattr(Processes, name, lambda *_, result=result: result)
    with pytest.raises(ConfigError, match=problem):
        pretrain(texts or text, tmp_path / "out", "tiny", n_lanes=5)


def test_processes_that_see_different_texts_are_refused(text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(text.read_text(encoding="utf-8") + "one more line .\n", encoding="utf-8")
    shared = {**environment(), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    found = []
    for rank, (file, out) in enumerate(((text, "a"), (other, "b"))):
        words = ["pretrain", str(file), *SETTINGS, "--out", str(tmp_path / out)]
        found.append(
            subprocess.Popen(
                [sys.executable, "-m", "elmokit", *words],
                env={**shared, "RANK": str(rank), "LOCAL_RANK": "0"},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    for process in found:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 2
        assert "do not see the same text" in said
