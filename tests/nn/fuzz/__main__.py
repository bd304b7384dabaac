"""`python -m tests.nn.fuzz`: what users do to networks, each run as it is and on the plainest route.

Prints the number of a case before it is run, a line for each difference with what repeats it, and a summary.
"""

import argparse
import faulthandler
import json
import sys
import traceback
import warnings
from collections import Counter
from contextlib import AbstractContextManager

import numpy as np
import torch

from tests.nn.fuzz.actions import act
from tests.nn.fuzz.draw import Case, Rng, draw_case
from tests.nn.fuzz.outcome import Outcome, difference, outcome
from tests.nn.fuzz.routes import ROUTES, Taken, fastest, plainest
from tests.nn.fuzz.uses import draw_use, set_use


def main() -> None:
    """Run the cases; the exit code is 1 where a case differs or a route was never taken."""
    parser = argparse.ArgumentParser(prog="python -m tests.nn.fuzz")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inductor", type=int, default=0, help="so many of the cases are compiled by inductor")
    parser.add_argument("--only", type=int, help="the number of one case, whose error is shown in full")
    args = parser.parse_args()
    faulthandler.enable()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    taken: Taken = Counter()
    counts: Counter[str] = Counter()
    failures = []
    every = args.cases // args.inductor if args.inductor else 0
    for number in range(args.cases):
        if args.only in (None, number):
            print(f"case {number}", flush=True)
            inductor = bool(every) and number % every == 0 and number < every * args.inductor
            said = run(args.seed, number, inductor, taken, counts, verbose=args.only is not None)
            if said is not None:
                repeat = f"--cases {args.cases} --seed {args.seed} --inductor {args.inductor} --only {number}"
                failures.append(f"{repeat}: {said}")
                print(f"FAILED {failures[-1]}", flush=True)
    never = [route for route in ROUTES if not taken[route]] if args.only is None and args.cases >= 300 else []
    print(json.dumps({"counts": counts, "taken": taken, "never taken": never, "failures": failures}))
    sys.exit(1 if failures or never else 0)


def run(seed: int, number: int, inductor: bool, taken: Taken, counts: Counter[str], verbose: bool) -> str | None:
    """What differs between the routes, None where nothing does."""
    rng = np.random.default_rng([seed, number])
    use, has_small_tiles = draw_use(rng, inductor), bool(rng.random() < 0.5)
    is_compiled = "compiled" in use
    found, case = made(
        np.random.default_rng([seed, number, 1]), use, fastest(taken, has_small_tiles, is_compiled), False
    )
    expected, _ = made(np.random.default_rng([seed, number, 1]), use, plainest(), True)
    counts["error" if expected.error is not None else "compared"] += 1
    counts[use] += 1
    if verbose:
        for each in (found, expected):
            print(case.done, "".join(traceback.format_exception(each.error)) if each.error else "")
    said = difference(found, expected, case)
    return None if said is None else " ".join(f"{said} <- {'; '.join(case.done)}".split())


def made(rng: Rng, use: str, route: AbstractContextManager[None], is_plain: bool) -> tuple[Outcome, Case]:
    """The case drawn and run on a route."""
    torch.default_generator.manual_seed(int(rng.integers(2**31)))
    with route:
        case = draw_case(rng)
        case.is_plain, case.is_compiled = is_plain, "compiled" in use
        try:
            act(rng, case)
            set_use(rng, case, use)
            return outcome(case, int(rng.integers(2**31))), case
        except Exception as error:
            return Outcome(error=error), case
        finally:
            for clean in case.cleanup:
                clean()


if __name__ == "__main__":
    main()
