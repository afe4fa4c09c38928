"""Damaged model folders, threads, races and kills: a few here, all of them with ELMOKIT_CAMPAIGN=1."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import damage
from program import Cli

FULL = bool(os.environ.get("ELMOKIT_CAMPAIGN"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return damage.make_models(tmp_path_factory.mktemp("models"))


def test_damaged_model_folders_are_refused_or_give_the_same_numbers(
    models: dict[str, Path], tmp_path: Path
) -> None:
    n_refused, n_same = damage.run_mutations(models, tmp_path / "copy", 1000 if FULL else 80)
    print(f"mutations of model folders: {n_refused:,} refused, {n_same:,} without effect")
    assert n_refused > n_same


def test_damaged_vector_stores_are_refused_or_give_the_same_answers(tmp_path: Path) -> None:
    n_refused, n_same = damage.run_store_mutations(tmp_path, 400 if FULL else 60)
    print(f"mutations of vector stores: {n_refused:,} refused, {n_same:,} without effect")
    assert n_refused > n_same


def test_eight_threads_get_from_every_kind_of_model_what_one_gets(
    models: dict[str, Path], tmp_path: Path
) -> None:
    n_answers = damage.run_threads(models, tmp_path / "store", 40 if FULL else 16)
    print(f"answers from eight threads, equal to the bit to those of one: {n_answers}")


@pytest.mark.parametrize("verb", damage.VERBS if FULL else ["baseline", "predict"])
def test_two_processes_do_not_write_to_one_folder(verb: str) -> None:
    damage.run_races([verb])


@pytest.mark.parametrize("verb", damage.IN_ONE_GO)
def test_a_job_in_one_go_is_done_already_when_it_is_run_again(cli: Cli, tmp_path: Path, verb: str) -> None:
    out = tmp_path / "out"
    words = damage.make_command(verb, tmp_path, out)[3:]
    first = cli(*words).check_fine()
    files = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert not [path for path, content in files.items() if str(tmp_path).encode() in content]
    cli(*words).check_fine("Already done")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == files
    assert "Already done" not in first.out
    if words[0] != "convert":
        for path in (tmp_path / "rows.csv", tmp_path / "text.txt"):  # rows whose labels have other names
            path.write_bytes(path.read_bytes().replace(b"bank1", b"bank8").replace(b"sports", b"sport"))
        cli(*words).check_refused(out, "changed; nothing in it was touched", "--overwrite")


@pytest.mark.parametrize("verb", damage.VERBS if FULL else ["senses"])
def test_a_job_that_was_killed_ends_well_when_it_is_run_again(verb: str) -> None:
    damage.run_kills(3 if FULL else 1, [verb])


@pytest.mark.parametrize("verb", damage.OVERWRITES if FULL else ["embed"])
def test_a_result_that_is_overwritten_by_a_job_that_was_killed_is_the_old_one_or_the_new(verb: str) -> None:
    damage.run_overwrites(5 if FULL else 1, [verb])


def test_runs_that_share_a_prepared_text_do_not_hinder_each_other() -> None:
    damage.run_shared_corpora(5 if FULL else 1)
