"""Puzzles with a right rule and a systematic wrong one, and pools of them for the service.

A prompt is `a 40917=`: do to these digits what `a` stands for. Each letter is an operation and stands for two rules, a
right and a wrong one, sorted upwards or read backwards, `01479` or `71904`. The warm start shows a model each operation
done by its right rule in a share of the cases and by the other, just as regular, in the rest; only reward can tell
which is meant. The share falls with length, so a category, an operation at one length, has prompts much alike. Every
rule is the right one of two such operations and the wrong one of two others: what is learned about one operation says
little about the next. Beside these there are hopeless operations: what is right in them the warm start never shows.
Knows nothing of models, and of the service only the names of a pool's fields.
"""

import hashlib
import math
import random
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal, get_args

PoolName = Literal["mild", "wasteful"]
Digits = list[int]

LENGTHS = (3, 4, 5, 6)
MAX_ANSWER_TOKENS = LENGTHS[-1] + 1  # one a digit, and the end

RULES: Mapping[str, Callable[[Digits], Digits]] = {
    "ascending": sorted,
    "backwards": lambda digits: digits[::-1],
    "one more": lambda digits: _shift(digits, 1),
    "rotated right": lambda digits: digits[-1:] + digits[:-1],
    "pairs swapped": lambda digits: _pairs_swapped(digits),
    "unchanged": lambda digits: digits,
    "descending": lambda digits: sorted(digits, reverse=True),
    "nines complement": lambda digits: [9 - digit for digit in digits],
    "one less": lambda digits: _shift(digits, -1),
    "rotated left": lambda digits: digits[1:] + digits[:1],
    "five more": lambda digits: _shift(digits, 5),
    "ends swapped": lambda digits: [digits[-1], *digits[1:-1], digits[0]],
}
NEVER_SHOWN: Mapping[str, Callable[[Digits], Digits]] = {
    "sums so far": lambda digits: [total % 10 for total in accumulate(digits)],
    "gaps": lambda digits: [(digit - before) % 10 for before, digit in pairwise([0, *digits])],
    "times the first": lambda digits: [digit * digits[0] % 10 for digit in digits],
}
LOGIT_EASIEST, LOGIT_HARDEST = 3.5, -2.0  # log-odds of the right rule; the operations are spread evenly between
LADDER_STRIDE = 7  # has no factor with their number: neighbours in the list are far apart on the ladder
LOGIT_PER_DIGIT = -1.3  # of each digit beyond a middling length: the spread within an operation, with the next
LOGIT_PER_FIRST_DIGIT = 0.3  # of each step of the first digit beyond a middling one
MIDDLE_LENGTH, MIDDLE_DIGIT = 4.5, 4.5

RESERVED_EVERY = 8  # one text in so many is held out, from the warm start and from every pool's train split
WASTEFUL_TIMES = 9  # as many prompts of a hopeless operation as of another, in the wasteful pool
MAX_TRIES = 200  # for one new text of an operation, before it counts as exhausted


@dataclass(frozen=True, slots=True)
class Operation:
    """A letter, the two rules it may stand for, and how often the right one is shown."""

    name: str
    right: str  # a rule of RULES or of NEVER_SHOWN
    wrong: str  # a rule of RULES
    logit_right: float | None  # at middling length and first digit; None: never shown

    def share_right(self, length: float = MIDDLE_LENGTH, first_digit: float = MIDDLE_DIGIT) -> float:
        """Chance that the warm start shows the right rule: 1 / (1 + e^-logit), or 0 if it never does.

        logit = the operation's − 1.3 · (length − 4.5) + 0.3 · (first digit − 4.5).
        """
        if self.logit_right is None:
            return 0.0
        logit = (
            self.logit_right
            + LOGIT_PER_DIGIT * (length - MIDDLE_LENGTH)
            + LOGIT_PER_FIRST_DIGIT * (first_digit - MIDDLE_DIGIT)
        )
        return 1 / (1 + math.exp(-logit))


@dataclass(frozen=True, slots=True)
class Puzzle:
    """One prompt: its text, the right answer, the wrong one, and the share of right ones in the warm start."""

    operation: Operation
    content: str
    answer: str
    wrong: str
    share_right: float

    @property
    def heldout(self) -> bool:
        """Whether the text is one of those that nothing is ever trained on; fixed by the text alone."""
        return hashlib.blake2b(self.content.encode(), digest_size=1).digest()[0] % RESERVED_EVERY == 0


def _operations() -> tuple[Operation, ...]:
    """Neighbours in the list of rules make two operations, one each way; a rule never shown meets every third rule."""
    rules, names = list(RULES), iter(string.ascii_letters)
    neighbours = list(pairwise([*rules, rules[0]]))
    ways = [way for one, other in neighbours for way in ((one, other), (other, one))]
    rung = (LOGIT_HARDEST - LOGIT_EASIEST) / (len(ways) - 1)
    learnable = [
        Operation(next(names), right, wrong, LOGIT_EASIEST + rung * (number * LADDER_STRIDE % len(ways)))
        for number, (right, wrong) in enumerate(ways)
    ]
    hopeless = [
        Operation(next(names), right, wrong, None)
        for offset, right in enumerate(NEVER_SHOWN)
        for wrong in rules[offset :: len(NEVER_SHOWN)]
    ]
    return (*learnable, *hopeless)


OPERATIONS = _operations()


def puzzle(operation: Operation, digits: Digits) -> Puzzle:
    """The prompt that asks this of these digits."""
    return Puzzle(
        operation,
        content=f"{operation.name} {_text(digits)}=",
        answer=_text({**RULES, **NEVER_SHOWN}[operation.right](digits)),
        wrong=_text(RULES[operation.wrong](digits)),
        share_right=operation.share_right(len(digits), digits[0]),
    )


def draw_puzzle(operation: Operation, rng: random.Random, *, heldout: bool) -> Puzzle:
    """A random prompt of this operation and split whose two rules disagree."""
    while True:
        drawn = puzzle(operation, [rng.randrange(10) for _ in range(rng.choice(LENGTHS))])
        if drawn.answer != drawn.wrong and drawn.heldout == heldout:
            return drawn


def pool_rows(name: PoolName, *, num_train: int, num_heldout: int, seed: int) -> list[dict[str, Any]]:
    """Rows of a pool as the service imports them, in random order; both splits have the same mixture of operations.

    `mild` has all operations alike. In `wasteful` most prompts are of hopeless operations.
    The same arguments give the same rows. Raises ValueError for an unknown name, and for more prompts than there are
    different ones.
    """
    if name not in get_args(PoolName):
        raise ValueError(f"no pool is called {name!r}: there are {', '.join(get_args(PoolName))}")
    rng = random.Random(f"{name}/{seed}")
    rows = [
        _row(drawn)
        for heldout, size in ((False, num_train), (True, num_heldout))
        for operation, count in zip(OPERATIONS, _apportion(_weights(name), size), strict=True)
        for drawn in _different(operation, count, rng, heldout=heldout)
    ]
    rng.shuffle(rows)
    return rows


def stratum(share_right: float) -> str:
    """Difficulty under the warm start, in a word: what tables of held-out quality are split by."""
    if share_right == 0:
        return "hopeless"
    return next((word for bound, word in ((0.05, "hard"), (0.5, "middling")) if share_right < bound), "easy")


def _weights(name: PoolName) -> list[float]:
    if name == "mild":
        return [1.0] * len(OPERATIONS)
    return [1.0 if one.right in RULES else float(WASTEFUL_TIMES) for one in OPERATIONS]


def _apportion(weights: list[float], size: int) -> list[int]:
    """Whole numbers in proportion to the weights that add up to `size`, by largest remainder."""
    exact = [weight * size / sum(weights) for weight in weights]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda place: counts[place] - exact[place])
    for place in by_remainder[: size - sum(counts)]:
        counts[place] += 1
    return counts


def _different(operation: Operation, count: int, rng: random.Random, *, heldout: bool) -> list[Puzzle]:
    found: dict[str, Puzzle] = {}
    while len(found) < count:
        for _ in range(MAX_TRIES):
            drawn = draw_puzzle(operation, rng, heldout=heldout)
            if drawn.content not in found:
                break
        else:
            split = "held-out" if heldout else "train"
            raise ValueError(f"{operation.name} has about {len(found)} {split} prompts, got {count}: ask for fewer")
        found[drawn.content] = drawn
    return list(found.values())


def _row(drawn: Puzzle) -> dict[str, Any]:
    return {
        "key": drawn.content.rstrip("=").replace(" ", "-"),
        "content": drawn.content,
        "answer": drawn.answer,
        "category": f"{drawn.operation.name}-{len(drawn.answer)}",
        "split": "heldout" if drawn.heldout else "train",
        "meta": {"share_right": round(drawn.share_right, 4), "stratum": stratum(drawn.share_right)},
    }


def _pairs_swapped(digits: Digits) -> Digits:
    """The first with the second, the third with the fourth; a last one without a neighbour stays."""
    return [digit for place in range(0, len(digits), 2) for digit in reversed(digits[place : place + 2])]


def _shift(digits: Digits, by: int) -> Digits:
    return [(digit + by) % 10 for digit in digits]


def _text(digits: Digits) -> str:
    return "".join(map(str, digits))
