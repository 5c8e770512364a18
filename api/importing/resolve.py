"""What becomes of each row of an upload: a new prompt, an edit, an update, a repetition, or a refusal.

Called by `api.db.imports` chunk by chunk, with those prompts of the pool that the chunk's rows may be about. Pure: it
changes no database, and says in a `Plan` what is to be written.

The rules, in order, for a row with key K and content C (content and answer; its question is the content alone):

1. The question stands in the other split: refused. It never moves from heldout to train, not even by way of an edit, an
   absent prompt or another answer; from train to heldout it may, under its own key.
2. K names a prompt with C, or the row says nothing of content: that prompt, updated where the row says something new.
3. K names a prompt with other content: an edit. The new version is a new prompt with a fresh history and takes the key
   over; the old one is kept as superseded. Going back to an earlier version takes that one, history and all, up again.
4. The row gives no key, and C is that of a prompt with a given key: that prompt.
5. Otherwise: a new prompt. Keys that are given are kept apart even where they share their content, with a warning.

A prompt that an earlier row of the upload was about takes nothing from a later one: the same again is merged, other
content under the same key refused. What a row does not say stays as it is; a new prompt that says no split is in train.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from api.importing.known import Known, Lookup
from api.importing.rows import MAX_FEATURES, VECTOR, PromptRow, RowFault

DEFAULT_SPLIT = "train"  # of a row that says none and is not about a prompt known by this key
MAX_ERRORS = 1_000  # listed in one report
MAX_EXAMPLES = 20  # in one warning
SHOWN_KEY_CHARACTERS = 80


@dataclass(slots=True, kw_only=True)
class Plan:
    """What a chunk changes."""

    created: list[Known] = field(default_factory=list)
    changed: dict[int, Known] = field(default_factory=dict)
    tallies: Counter[tuple[str, str | None, bool, bool]] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class Counts:
    """How many rows, by what became of them; the five after `received` add up to it."""

    received: int = 0
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    merged: int = 0
    rejected: int = 0
    matched: int = 0  # prompts that were there before, with this content
    linked: int = 0  # new versions and variants of prompts that were there before


class Resolver:
    """Applies the rules to one upload, in the order of its rows."""

    def __init__(self, *, num_rows: int, feature_lengths: dict[str, int], replace: bool) -> None:
        self.num_rows = num_rows  # of the pool so far; grows with the chunks
        self.first_new = num_rows
        self.feature_lengths = feature_lengths
        self.replace = replace
        self.counts = Counts()
        self.errors: list[RowFault] = []
        self.unnamed_faults = 0  # refused rows that could not be matched with any prompt
        self._notes: dict[str, tuple[int, list[str]]] = {}
        self._questions: set[int] = set()  # those noted to have several answers, by the start of their hash
        self._mentioned = bytearray(num_rows)  # 1: an upload row was about this prompt; 2: and it was taken over

    def resolve(self, rows: Iterable[PromptRow | RowFault], lookup: Lookup) -> Plan:
        """Decides about one chunk. New prompts stand in the plan in the order of their rows."""
        plan = Plan()
        for row in rows:
            self.counts.received += 1
            if isinstance(row, RowFault):
                self._refuse(row, lookup)
                continue
            fault = self._place(row, lookup, plan)
            if fault is not None:
                self._refuse(RowFault(row.place, *fault, row.key), lookup)
        self.num_rows += len(plan.created)
        return plan

    def is_mentioned(self, row: int) -> bool:
        """Whether the upload had a row about this prompt, taken over or not."""
        return self._mentioned[row] > 0

    def warnings(self) -> list[str]:
        """What a person should know of the upload besides its errors, one sentence or two each."""
        listed = []
        for name, text in _NOTES.items():
            if name in self._notes:
                count, examples = self._notes[name]
                listed.append(f"{text}: {count}, for example {', '.join(examples)}.")
        hidden = self.counts.rejected - len(self.errors)
        if hidden > 0:
            listed.append(f"Rejected rows beyond the {MAX_ERRORS} that are listed under errors: {hidden}.")
        if self.replace and self.unnamed_faults:
            listed.append(
                f"Rejected rows that name no prompt, so that theirs may now be marked absent: {self.unnamed_faults}."
            )
        return listed

    def _place(self, row: PromptRow, lookup: Lookup, plan: Plan) -> tuple[str, str] | None:
        """Carries out the first rule that fits; a refusal comes back as code and detail."""
        owner = lookup.by_key.get(row.key)
        if owner is None:
            twin = None if row.has_key else _twin(row, lookup)
            return self._create(row, lookup, plan) if twin is None else self._same(row, twin, lookup, plan)
        if owner.question_hash is not None and row.content is None and row.answer is not None:
            return (
                "missing_content",
                "an answer belongs to its content: give both, or neither to leave them as they are",
            )
        if not row.has_content or owner.content_hash == row.content_hash:
            return self._same(row, owner, lookup, plan)
        return self._edit(row, owner, lookup, plan)

    def _same(self, row: PromptRow, known: Known, lookup: Lookup, plan: Plan) -> tuple[str, str] | None:
        """Rules 2 and 4: the row is about a prompt that is there."""
        named = row.key == known.key
        split = row.split or (known.split if named and self._is_old(known) else DEFAULT_SPLIT)
        if split != known.split and known.current and (self._taken(known) or not named):
            return _split_conflict(known, split)
        if self._taken(known):
            self.counts.merged += 1
            self._note("merged", f"row {row.place}")
            if _says_otherwise(row, known):
                self._note("ignored", _cut(row.key))
            return None
        if known.split == "heldout" and split == "train":
            return "heldout_to_train", f"the prompt {_cut(known.key)!r} is held out and stays so; split is train"
        fault = self._split_fault(known.question_hash, split, known, lookup) or self._feature_fault(row)
        if fault is not None:
            return fault
        if self._is_old(known):
            self.counts.matched += 1
        before = known.cell
        if self._update(row, known, split):
            plan.changed[known.row] = known
            plan.tallies[before] -= 1
            plan.tallies[known.cell] += 1
            self.counts.updated += 1
        else:
            self.counts.unchanged += 1
        self._take(known)
        self._note_answers(known, lookup)
        return None

    def _edit(self, row: PromptRow, old: Known, lookup: Lookup, plan: Plan) -> tuple[str, str] | None:
        """Rule 3: the key's content changes."""
        if self._taken(old):
            return "duplicate_key", f"key {_cut(row.key)!r} came earlier in this upload with other content"
        split = row.split or old.split
        if old.split == "heldout" and split == "train":
            return (
                "heldout_to_train",
                f"the prompt {_cut(old.key)!r} is held out and stays so when edited; split is train",
            )
        fault = self._split_fault(row.question_hash, split, old, lookup) or self._feature_fault(row)
        if fault is not None:
            return fault
        if _twin(row, lookup) is not None:
            self._note("reused", _cut(row.key))
        plan.tallies[old.cell] -= 1
        old.superseded = old.absent = True
        plan.changed[old.row] = old
        lookup.by_version[old.key, old.content_hash] = old
        earlier = lookup.by_version.get((row.key, row.content_hash))
        self.counts.updated += 1
        self.counts.linked += 1
        self._mention(old)
        if earlier is None:
            self._add(row, split, lookup, plan, replaces=old.row)
            return None
        del lookup.by_version[row.key, row.content_hash]
        lookup.by_key[row.key] = earlier
        earlier.superseded = False
        self._update(row, earlier, split)
        plan.changed[earlier.row] = earlier
        plan.tallies[earlier.cell] += 1
        self._take(earlier)
        self._note_answers(earlier, lookup)
        return None

    def _create(self, row: PromptRow, lookup: Lookup, plan: Plan) -> tuple[str, str] | None:
        """Rule 5."""
        split = row.split or DEFAULT_SPLIT
        fault = self._split_fault(row.question_hash, split, None, lookup) or self._feature_fault(row)
        if fault is not None:
            return fault
        self.counts.created += 1
        parent = lookup.by_key.get(row.parent or "")
        variants = lookup.by_question.get(row.question_hash or "", ())
        twin = _twin(row, lookup) if row.has_key else None
        if twin is not None and twin.current and (not self.replace or self._taken(twin)):
            self._note("shared", f"{_cut(row.key)} = {_cut(twin.key)}")
        if (parent is not None and self._is_old(parent)) or any(self._is_old(known) for known in variants):
            self.counts.linked += 1
        self._add(row, split, lookup, plan, replaces=None)
        return None

    def _add(self, row: PromptRow, split: str, lookup: Lookup, plan: Plan, *, replaces: int | None) -> None:
        known = Known(
            row=self.num_rows + len(plan.created),
            key=row.key,
            content_hash=row.content_hash,
            question_hash=row.question_hash,
            category=row.category or None,
            split=split,
            features=row.features or None,
            parent=row.parent or None,
            meta=row.meta or None,
            absent=False,
            superseded=False,
            quarantined=False,
            replaces=replaces,
            is_new=True,
            content=row.content,
            answer=row.answer,
        )
        plan.created.append(known)
        plan.tallies[known.cell] += 1
        self._mentioned.append(0)
        lookup.add(known)
        self._take(known)
        self._note_answers(known, lookup)

    def _update(self, row: PromptRow, known: Known, split: str) -> bool:
        """Writes what the row says into the prompt; whether that changed anything."""
        before = (known.category, known.split, known.features, known.parent, known.meta, known.absent)
        if known.split == "train" and split == "heldout":
            self._note("held_out", _cut(known.key))
        known.split, known.absent = split, False
        if row.category is not None:
            known.category = row.category or None
        if row.features is not None:
            known.features = row.features or None
        if row.parent is not None:
            known.parent = row.parent or None
        if row.meta is not None:
            known.meta = row.meta or None
        return before != (known.category, known.split, known.features, known.parent, known.meta, known.absent)

    def _split_fault(
        self, question_hash: str | None, split: str, own: Known | None, lookup: Lookup
    ) -> tuple[str, str] | None:
        """Rule 1, against every other prompt with the same question."""
        for other in lookup.by_question.get(question_hash or "", ()):
            if other is own or other.split == split:
                continue
            if other.current:
                return _split_conflict(other, split)
            if split == "train":
                return (
                    "heldout_to_train",
                    f"its content was held out, as the prompt {_cut(other.key)!r}; split is train",
                )
        return None

    def _feature_fault(self, row: PromptRow) -> tuple[str, str] | None:
        """A feature is a number, or a vector of one length, in the whole pool."""
        lengths = row.feature_lengths
        if not lengths:
            return None
        for name, length in lengths.items():
            known = self.feature_lengths.get(name, length)
            if known != length:
                where = f"features.{name[:SHOWN_KEY_CHARACTERS]}" if name else "features"
                return "wrong_length", f"{where} is {_shape(length)}, elsewhere in the pool it is {_shape(known)}"
        names = {**self.feature_lengths, **lengths}
        if VECTOR in names and len(names) > 1:
            return (
                "wrong_type",
                "features are one vector without a name in some prompts of the pool, and named in others",
            )
        if len(names) > MAX_FEATURES:
            return (
                "too_long",
                f"the pool would have {len(names)} features with different names, allowed are {MAX_FEATURES}",
            )
        self.feature_lengths.update(lengths)
        return None

    def _refuse(self, fault: RowFault, lookup: Lookup) -> None:
        self.counts.rejected += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(fault)
        known = lookup.by_key.get(fault.key or "")
        if known is not None:
            self._mention(known)
        elif fault.key is None:
            self.unnamed_faults += 1

    def _note_answers(self, known: Known, lookup: Lookup) -> None:
        """Notes one question with several answers; under `replace` only among what the upload has."""
        same = lookup.by_question.get(known.question_hash or "", ())
        if len(same) < 2:
            return
        variants = [k for k in same if k.current and (not self.replace or self._taken(k))]
        if len({k.content_hash for k in variants}) > 1:
            question = int(str(known.question_hash)[:16], 16)
            if question not in self._questions:
                self._questions.add(question)
                self._note("answers", " · ".join(_cut(k.key) for k in variants))

    def _note(self, name: str, example: str) -> None:
        count, examples = self._notes.get(name, (0, []))
        self._notes[name] = (count + 1, examples if len(examples) >= MAX_EXAMPLES else [*examples, example])

    def _taken(self, known: Known) -> bool:
        return self._mentioned[known.row] == 2

    def _take(self, known: Known) -> None:
        self._mentioned[known.row] = 2

    def _mention(self, known: Known) -> None:
        self._mentioned[known.row] = max(1, self._mentioned[known.row])

    def _is_old(self, known: Known) -> bool:
        return known.row < self.first_new


# In the order in which a person should read them.
_NOTES = {
    "answers": "Questions with different answers, kept as prompts of their own and linked",
    "held_out": "Prompts moved from train to heldout, which may have been trained on before",
    "reused": "Keys that came back with the content of another key, as if rows had been renumbered (without `key` a "
    "prompt's history follows its content)",
    "merged": "Rows that repeat a prompt of this upload, trailing white space aside, and were merged with it",
    "ignored": "Rows whose category, features, parent or meta were ignored, as an earlier row has the same prompt",
    "shared": "New keys that share their content with another key, kept as prompts of their own (without `key` they "
    "would be merged)",
}


def _twin(row: PromptRow, lookup: Lookup) -> Known | None:
    """The prompt with the row's content under another key; one in use before an absent one."""
    same_question = lookup.by_question.get(row.question_hash or "")
    if not same_question:
        return None
    same = [known for known in same_question if known.content_hash == row.content_hash and not known.superseded]
    return min(same, key=lambda known: (known.absent, known.row), default=None)


def _split_conflict(other: Known, split: str) -> tuple[str, str]:
    return "split_conflict", f"its content is in {other.split} as the prompt {_cut(other.key)!r}; split is {split}"


def _says_otherwise(row: PromptRow, known: Known) -> bool:
    said = ((row.category, known.category), (row.features, known.features), (row.parent, known.parent))
    return any(new is not None and (new or None) != old for new, old in (*said, (row.meta, known.meta)))


def _shape(length: int) -> str:
    return f"a vector of {length}" if length else "a number"


def _cut(key: str) -> str:
    return key if len(key) <= SHOWN_KEY_CHARACTERS else key[: SHOWN_KEY_CHARACTERS - 1] + "…"
