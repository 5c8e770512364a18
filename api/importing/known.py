"""Prompts of a pool as far as the rules of an upload ask: one of them, and those that a chunk of rows may be about.

`api.db.staging` and `api.db.imports` make them of what the database has, `resolve` decides by them and changes them.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Known:
    """A prompt of the pool, as far as the rules ask. `row` of a new one is provisional until it is written.

    Positional, in the order in which a query selects: an upload makes one for each prompt that is there. Of those the
    texts stay in the database; a new one has its own.
    """

    row: int
    key: str
    content_hash: str
    question_hash: str | None
    category: str | None
    split: str
    features: str | None
    parent: str | None
    meta: str | None
    absent: bool
    superseded: bool
    quarantined: bool
    replaces: int | None = None
    is_new: bool = False
    content: str | None = None
    answer: str | None = None

    @property
    def current(self) -> bool:
        return not (self.absent or self.superseded)

    @property
    def cell(self) -> tuple[str, str | None, bool, bool]:
        """Where it counts in the pool's tallies."""
        return self.split, self.category, self.absent, self.quarantined

    @property
    def num_bytes(self) -> int:
        return len(self.content or "") + len(self.answer or "") + len(self.features or "")


@dataclass(slots=True, kw_only=True)
class Lookup:
    """The prompts that a chunk may be about."""

    by_key: dict[str, Known] = field(default_factory=dict)  # current owner of the key
    by_version: dict[tuple[str, str], Known] = field(default_factory=dict)  # superseded, by key and content hash
    by_question: dict[str, list[Known]] = field(default_factory=dict)  # of any state

    def add(self, known: Known) -> None:
        if known.superseded:
            self.by_version[known.key, known.content_hash] = known
        else:
            self.by_key[known.key] = known
        if known.question_hash is not None:
            self.by_question.setdefault(known.question_hash, []).append(known)
