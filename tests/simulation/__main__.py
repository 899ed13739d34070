"""`python -m tests.simulation SEED [COUNT] [--fleet]`: replay a seed, or so many from it on, and tell what broke.

With `--fleet` each world has several hosts on one ledger.
"""

from __future__ import annotations

import logging
import sys
import time

from tests.simulation.fleet import simulate_fleet
from tests.simulation.world import simulate


def main() -> int:
    logging.disable(logging.CRITICAL)
    first, *counts = (int(word) for word in sys.argv[1:] if word != "--fleet")
    count = counts[0] if counts else 1
    live = simulate_fleet if "--fleet" in sys.argv else simulate
    broken, records, steps = [], 0, 0
    began = time.process_time()
    for seed in range(first, first + count):
        outcome = live(seed)
        records, steps = records + outcome.records, steps + outcome.steps
        if count == 1:
            print("\n".join(outcome.told))
        if outcome.faults:
            broken.append(seed)
            print(f"seed {seed}:", *outcome.faults[:8], sep="\n    ", flush=True)
    spent = time.process_time() - began
    print(f"{count} seeds, {len(broken)} broken {broken[:20]}, {records} records, {steps} steps, {spent:.1f} s of CPU")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
