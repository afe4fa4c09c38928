"""How often a ranking calls differences real that are none, and how many real ones it finds, by simulation.

Eight methods, three seeds each, 1,000 test rows: rows are easy or hard for all alike, a seed moves a method's
accuracy, and every answer has chance of its own. Where all methods are equally good, one false alarm or more
should come in at most 5 of 100 rankings.

    python benchmarks/false_alarms.py --worlds 150     (two minutes)
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elmokit.comparison.ranking import rank
from measuring import finish

WORLDS: dict[str, tuple[Sequence[float], float]] = {  # the seeds' spread, by method, and the step in goodness
    "rows alone": ([0.0] * 8, 0.0),
    "seeds vary a little": ([0.05] * 8, 0.0),
    "seeds vary much": ([0.15] * 8, 0.0),
    "one method varies ten times as much": ([0.03] * 7 + [0.3], 0.0),
    "two methods vary ten times as much": ([0.03] * 6 + [0.3] * 2, 0.0),
    "every method varies in its own way": ([0.01, 0.02, 0.05, 0.1, 0.2, 0.01, 0.05, 0.1], 0.0),
    "each is better than the next": ([0.05] * 8, 0.15),
}


def world(
    rng: np.random.Generator, spreads: Sequence[float], step: float, n_seeds: int = 3, n_rows: int = 1000
) -> dict[str, npt.NDArray[np.bool_]]:
    """Whether the answers of each method are right, (n_seeds, n_rows)."""
    ease = 1.2 + rng.normal(size=n_rows)
    return {
        f"method {place}": np.stack(
            [
                ease + rng.normal() * spread - step * place + 0.7 * rng.normal(size=n_rows) > 0
                for _ in range(n_seeds)
            ]
        )
        for place, spread in enumerate(spreads)
    }


def main() -> None:
    """Rank simulated answers and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--worlds", type=int, default=150, help="how many of each kind")
    arguments = parser.parse_args()
    found = {}
    for name, (spreads, step) in WORLDS.items():
        rng = np.random.default_rng(1)
        counts = []
        for _ in range(arguments.worlds):
            ranking = rank(world(rng, spreads, step), n_resamples=2000)
            counts.append(sum(pair.significant for pair in ranking.pairs))
        found[name] = {
            "rankings with any": round(float(np.mean([count > 0 for count in counts])), 3),
            "pairs of 28": round(float(np.mean(counts)), 2),
        }
        print(f"{name}: {found[name]}", flush=True)
    finish({"called real": found})


if __name__ == "__main__":
    main()
