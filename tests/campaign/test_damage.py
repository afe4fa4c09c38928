"""Damaged model folders, threads, races and kills: a few here, all of them with ELMOKIT_CAMPAIGN=1."""

from __future__ import annotations

import os

import pytest

import damage

FULL = bool(os.environ.get("ELMOKIT_CAMPAIGN"))


def test_damaged_model_folders_are_refused_or_give_the_same_numbers() -> None:
    n_refused, n_same = damage.run_mutations(1000 if FULL else 80)
    print(f"mutations of model folders: {n_refused:,} refused, {n_same:,} without effect")
    assert n_refused > n_same


def test_eight_threads_get_from_every_kind_of_model_what_one_gets() -> None:
    n_answers = damage.run_threads(40 if FULL else 16)
    print(f"answers from eight threads, equal to the bit to those of one: {n_answers}")


@pytest.mark.parametrize("verb", damage.VERBS if FULL else ["baseline"])
def test_two_processes_do_not_write_to_one_folder(verb: str) -> None:
    damage.run_races([verb])


@pytest.mark.skipif(not FULL, reason="part of make campaign")
@pytest.mark.parametrize("verb", damage.VERBS)
def test_a_job_that_was_killed_ends_well_when_it_is_run_again(verb: str) -> None:
    damage.run_kills(3, [verb])
