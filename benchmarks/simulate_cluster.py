"""How long training takes on a cluster, and what failures and slow machines cost.

    python benchmarks/simulate_cluster.py [--machines 1 16 128 1024] [--hours 16000] [--write 1 10]

All machines take a step together, so a step lasts as long as that of the slowest one. When one of them
fails, all go back to the last checkpoint after a restart. Goodput is the share of the time in which steps
are made that last: what is left after writing checkpoints, doing steps again and restarting.

Rates, from publications: machines of a cluster of servers failed about every 16,000 hours (1,000 failures a
year of 1,800 machines, J. Dean, 2007), machines with eight GPUs about every 6,300 hours (419 interruptions
in 54 days of 2,048 machines, Llama 3, 2024). The time of a step varies by a tenth (log-normal); on the share
``--slow`` of the machines it is half as long again. Seeded: the same figures every time.

The plan is for the preset `small` with 30,000 words, as measured by scale_out.py: a process has two cores and
64 streams of 35 words; gradients are exchanged by rings, so that one copy of them passes into each machine.
"""

from __future__ import annotations

import argparse
import heapq
import math
from typing import Any

import numpy as np

from measuring import finish

WORDS_PER_SECOND, WORDS_PER_STEP = 9_500, 64 * 35  # of a process
DENSE, ROWS, TABLE = 11.2, 5.1, 30.8  # MB: dense gradients; rows of a process in a step; all rows
NETWORK = 1250.0  # MB per second: 10 Gbit/s
PLANS = ((1e9, 1), (1e9, 4), (10e9, 16), (10e9, 64), (100e9, 64), (100e9, 128))  # words, processes
CADENCES = (15.0, 60.0, 300.0, 900.0, 3600.0)  # seconds between checkpoints


def goodput(
    machines: int, hours: float, cadence: float, write: float, restart: float, rng: np.random.Generator
) -> float:
    """The share of the time that counts, over a thousand failures (or, of few machines, a century)."""
    between = 3600 * hours / machines  # mean time between failures of the whole
    done = spent = 0.0
    for span in rng.exponential(between, size=1000):
        # From one failure to the next: a restart, then rounds of work and writing; the last is cut off.
        rounds = max(0.0, span - restart) // (cadence + write)
        done += rounds * cadence
        spent += span
    return done / spent


def step_time(machines: int, slow: float, rng: np.random.Generator, n_steps: int = 400) -> float:
    """How long a step lasts, compared with a machine that works alone and never varies."""
    factors = np.where(rng.random(machines) < slow, 1.5, 1.0)
    slowest = [float((factors * rng.lognormal(0, 0.1, size=machines)).max()) for _ in range(n_steps)]
    return float(np.mean(slowest))


def best_cadence(machines: int, hours: float, write: float) -> float:
    """By Young's rule: the root of twice the time to write times the mean time between failures."""
    return math.sqrt(2 * write * 3600 * hours / machines)


def survivors(machines: int, spare: int, hours: float, repair: float, rng: np.random.Generator) -> float:
    """Share of the time in which no machine is missing, if ``spare`` ones stand by and repairs take hours."""
    now, missing, whole, repaired = 0.0, 0, 0.0, list[float]()
    for _ in range(20_000):
        failure = now + rng.exponential(hours / machines)
        while repaired and repaired[0] <= failure:
            end = heapq.heappop(repaired)
            whole += (end - now) * (missing <= spare)
            now, missing = end, missing - 1
        whole += (failure - now) * (missing <= spare)
        now, missing = failure, missing + 1
        heapq.heappush(repaired, now + repair)
    return whole / now


def plan(words: float, processes: int, accumulate: int, *, whole_table: bool) -> tuple[float, float]:
    """Hours for one pass, and the share of the time that is not spent on exchanging gradients."""
    compute = accumulate * WORDS_PER_STEP / WORDS_PER_SECOND
    rows = min(TABLE, accumulate * ROWS)  # at most: parts of a step share words
    exchanged = 2 * (DENSE + TABLE) if whole_table else 2 * DENSE + rows * (processes - 1)
    step = compute + (exchanged / NETWORK if processes > 8 else 0.0)  # up to eight fit on a machine
    return words / (processes * accumulate * WORDS_PER_STEP) * step / 3600, compute / step


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--machines", type=int, nargs="+", default=[1, 16, 128, 1024])
    parser.add_argument("--hours", type=float, default=16_000.0, help="between failures of one machine")
    parser.add_argument("--write", type=float, nargs="+", default=[1.0, 10.0], help="seconds per checkpoint")
    parser.add_argument("--restart", type=float, default=120.0, help="seconds until all work again")
    parser.add_argument("--slow", type=float, default=0.01, help="share of slow machines")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    print(
        "| machines | failures a day | s to write | "
        + " | ".join(f"{one:,.0f} s" for one in CADENCES)
        + " | best cadence |"
    )
    print("|---:|---:|---:|" + "---:|" * (len(CADENCES) + 1))
    for machines in options.machines:
        for write in options.write:
            shares = [
                goodput(machines, options.hours, one, write, options.restart, np.random.default_rng(0))
                for one in CADENCES
            ]
            best = best_cadence(machines, options.hours, write)
            daily = 24 * machines / options.hours
            cells = " | ".join(f"{share:.1%}" for share in shares)
            print(f"| {machines:,} | {daily:.3f} | {write:g} | {cells} | {best:,.0f} s |")
            figures[f"{machines} machines, {write:g} s"] = dict(
                zip(map(str, CADENCES), np.round(shares, 4).tolist(), strict=True)
            )
    print("\n| machines | step, even machines | with slow ones | all present, no spare | with 2 % spare |")
    print("|---:|---:|---:|---:|---:|")
    for machines in options.machines:
        rng = np.random.default_rng(0)
        even, uneven = step_time(machines, 0.0, rng), step_time(machines, options.slow, rng)
        spare = math.ceil(0.02 * machines)
        there = [survivors(machines, count, options.hours, 24.0, rng) for count in (0, spare)]
        print(f"| {machines:,} | {even:.2f} | {uneven:.2f} | {there[0]:.1%} | {there[1]:.1%} |")
        figures[f"{machines} machines"] = {"step": round(even, 3), "with slow ones": round(uneven, 3)}
    print(
        "\n| words | processes | as it is | accumulate=16 | whole table summed | the same, accumulate=4 |\n"
        "|---:|---:|---:|---:|---:|---:|"
    )
    for words, processes in PLANS:
        ways = ((1, False), (16, False), (1, True), (4, True))
        planned = [plan(words, processes, parts, whole_table=whole) for parts, whole in ways]
        cells = " | ".join(f"{hours:,.0f} h ({share:.0%})" for hours, share in planned)
        print(f"| {words / 1e9:.0f} billion | {processes} | {cells} |")
    finish(figures)


if __name__ == "__main__":
    main()
