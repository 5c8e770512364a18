"""Digit puzzles with a right rule and a systematic wrong one, and pools of them for the service.

A prompt is `sort 40917=`, its answer `01479`. The warm start teaches a model to follow the right rule in a share of
the cases, which falls with the length and with a small first digit, and a wrong rule that is just as regular in the
others. Reinforcement then has something to sharpen, and what it sharpens holds for prompts it never saw.
Knows nothing of models or of the service beyond the names of a pool's fields.
"""

import hashlib
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

PoolName = Literal["mild", "wasteful"]
Digits = list[int]

LENGTHS = range(3, 9)
MAX_ANSWER_TOKENS = LENGTHS[-1] + 1  # one a digit, and the end
LOGIT_PER_DIGIT = -1.3  # log-odds of the right rule lost by each further digit
LOGIT_PER_FIRST_DIGIT = 0.35  # and gained by each step of the first digit: the spread within a kind
MIDDLE_DIGIT = 4.5
RESERVED_EVERY = 8  # one text in so many is held out, from the warm start and from every pool's train split
HOPELESS_BELOW = 0.03  # share of the right rule under which hardly a group of 8 has a success
MASTERED_ABOVE = 0.97
WASTEFUL_TIMES = 8  # as many hopeless prompts of a kind as others, in the wasteful pool
MAX_TRIES = 200  # for one new text of a kind, before it counts as exhausted


@dataclass(frozen=True, slots=True)
class Family:
    """What is asked, how it is got right and how it is got wrong, and how often right at the shortest length."""

    right: Callable[[Digits], Digits]
    wrong: Callable[[Digits], Digits]
    logit_right: float  # at three digits and a middling first one


FAMILIES: Mapping[str, Family] = {
    "sort": Family(sorted, lambda digits: sorted(digits, reverse=True), 3.0),
    "flip": Family(lambda digits: digits[::-1], lambda digits: digits, 2.0),
    "next": Family(lambda digits: _shift(digits, 1), lambda digits: _shift(digits, -1), 4.0),
    "roll": Family(lambda digits: digits[1:] + digits[:1], lambda digits: digits[-1:] + digits[:-1], 1.0),
    "add": Family(lambda digits: _shift(digits, digits[-1]), lambda digits: _shift(digits, digits[0]), 0.5),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A family at one length: the category that a pool's prompts are grouped by."""

    family: str
    length: int

    @property
    def name(self) -> str:
        return f"{self.family}-{self.length}"

    def share_right(self, first_digit: float = MIDDLE_DIGIT) -> float:
        """Chance that the warm start shows the right rule, in (0, 1): 1 / (1 + e^-logit).

        logit = the family's − 1.3 · (length − 3) + 0.35 · (first digit − 4.5).
        """
        logit = (
            FAMILIES[self.family].logit_right
            + LOGIT_PER_DIGIT * (self.length - LENGTHS[0])
            + LOGIT_PER_FIRST_DIGIT * (first_digit - MIDDLE_DIGIT)
        )
        return 1 / (1 + math.exp(-logit))


@dataclass(frozen=True, slots=True)
class Puzzle:
    """One prompt: its text, the right answer, the wrong one, and the share of right ones in the warm start."""

    kind: Kind
    content: str
    answer: str
    wrong: str
    share_right: float

    @property
    def heldout(self) -> bool:
        """Whether the text is one of those that nothing is ever trained on; fixed by the text alone."""
        return hashlib.blake2b(self.content.encode(), digest_size=1).digest()[0] % RESERVED_EVERY == 0


KINDS = tuple(Kind(family, length) for family in FAMILIES for length in LENGTHS)


def puzzle(kind: Kind, digits: Digits) -> Puzzle:
    """The prompt that asks this of these digits."""
    family = FAMILIES[kind.family]
    return Puzzle(
        kind, f"{kind.family} {_text(digits)}=", _text(family.right(digits)), _text(family.wrong(digits)),
        kind.share_right(digits[0]),
    )  # fmt: skip


def draw_puzzle(kind: Kind, rng: random.Random, *, heldout: bool) -> Puzzle:
    """A random prompt of this kind and split whose two rules disagree."""
    while True:
        drawn = puzzle(kind, [rng.randrange(10) for _ in range(kind.length)])
        if drawn.answer != drawn.wrong and drawn.heldout == heldout:
            return drawn


def pool_rows(name: PoolName, *, num_train: int, num_heldout: int, seed: int) -> list[dict[str, Any]]:
    """Rows of a pool as the service imports them, in random order; both splits have the same mixture of kinds.

    `mild` has all kinds alike. In `wasteful` most prompts are of kinds that the warm start leaves hopeless, and the
    mastered kind counts double. The same arguments give the same rows. Raises ValueError for an unknown name and for
    more prompts than there are different ones.
    """
    if name not in get_args(PoolName):
        raise ValueError(f"no pool is called {name!r}: there are {', '.join(get_args(PoolName))}")
    rng = random.Random(f"{name}/{seed}")
    rows = [
        _row(drawn)
        for heldout, size in ((False, num_train), (True, num_heldout))
        for kind, count in zip(KINDS, _apportion(_weights(name), size), strict=True)
        for drawn in _different(kind, count, rng, heldout=heldout)
    ]
    rng.shuffle(rows)
    return rows


def stratum(share_right: float) -> str:
    """Difficulty under the warm start, in a word: what tables of held-out quality are split by."""
    bounds = ((HOPELESS_BELOW, "hopeless"), (0.2, "hard"), (0.8, "middling"), (MASTERED_ABOVE, "easy"))
    return next((word for bound, word in bounds if share_right < bound), "mastered")


def _weights(name: PoolName) -> list[float]:
    if name == "mild":
        return [1.0] * len(KINDS)
    return [float(WASTEFUL_TIMES) if stratum(kind.share_right()) == "hopeless" else 1.0 for kind in KINDS]


def _apportion(weights: list[float], size: int) -> list[int]:
    """Whole numbers in proportion to the weights that add up to `size`, by largest remainder."""
    exact = [weight * size / sum(weights) for weight in weights]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda place: counts[place] - exact[place])
    for place in by_remainder[: size - sum(counts)]:
        counts[place] += 1
    return counts


def _different(kind: Kind, count: int, rng: random.Random, *, heldout: bool) -> list[Puzzle]:
    found: dict[str, Puzzle] = {}
    while len(found) < count:
        for _ in range(MAX_TRIES):
            drawn = draw_puzzle(kind, rng, heldout=heldout)
            if drawn.content not in found:
                break
        else:
            split = "held-out" if heldout else "train"
            raise ValueError(
                f"{kind.name} has hardly more than {len(found)} {split} prompts, got {count}: ask for fewer"
            )
        found[drawn.content] = drawn
    return list(found.values())


def _row(drawn: Puzzle) -> dict[str, Any]:
    return {
        "key": drawn.content.rstrip("=").replace(" ", "-"),
        "content": drawn.content,
        "answer": drawn.answer,
        "category": drawn.kind.name,
        "split": "heldout" if drawn.heldout else "train",
        "meta": {"share_right": round(drawn.share_right, 4), "stratum": stratum(drawn.share_right)},
    }


def _shift(digits: Digits, by: int) -> Digits:
    return [(digit + by) % 10 for digit in digits]


def _text(digits: Digits) -> str:
    return "".join(map(str, digits))
