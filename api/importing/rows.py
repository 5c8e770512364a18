"""One row of an upload, checked: every value in its place, of its type, finite and within its limit.

Called by the import for each decoded row. A bad row is a value (`RowFault`) and not an exception, as the rest of the
upload applies all the same. It knows nothing of other rows and of the pool.
"""

import math
from typing import NamedTuple

import orjson

from api.errors import shown
from api.importing.content import Content, hash_without_content, hashes
from api.schemas import MAX_KEY_LENGTH

MAX_CONTENT_BYTES = 2**20  # of a content's JSON, and of an answer
MAX_CATEGORY_LENGTH = 200  # characters
MAX_FEATURES = 4_096  # numbers in one row, and names in one pool
MAX_FEATURE_NAME_LENGTH = 200  # characters
MAX_META_BYTES = 2**16  # of its JSON
MAX_NESTING = 64  # lists and objects inside one another in `meta` and in parts of messages

FIELDS = ("key", "content", "answer", "category", "split", "features", "parent", "meta")
SPLITS = ("train", "heldout")
VECTOR = ""  # the name under which the length of a bare feature vector is kept


class RowFault(NamedTuple):
    """A row that was not taken over: where it stood (from 0), a stable code, and a text that names field and value."""

    place: int
    code: str
    detail: str
    key: str | None = None  # where it could be read: the prompt is mentioned, though not changed


class PromptRow(NamedTuple):
    """A row that is right in itself. None: the row does not say. An empty text in category, features, parent or meta:
    the row says that there is none."""

    place: int
    key: str
    has_key: bool  # the key was given, not made from the content
    has_content: bool  # content or answer was given; else the row is about a prompt known by its key
    content_hash: str
    question_hash: str | None
    content: str | None  # JSON
    answer: str | None
    category: str | None
    split: str | None
    features: str | None  # JSON
    feature_lengths: dict[str, int] | None  # name -> length of the vector, 0 for a number
    parent: str | None
    meta: str | None  # JSON
    num_bytes: int  # about what the row takes in memory


def read_row(place: int, value: object) -> PromptRow | RowFault:
    """Checks a decoded row. `place` is where it stands in the upload, from 0."""
    key: str | None = None
    try:
        if not isinstance(value, dict):
            raise _Refused("wrong_type", f"a row is an object with named fields, got {shown(value)}")
        given = value.get("key")
        if given is not None:
            key = _name("key", given, MAX_KEY_LENGTH)
        if not value.keys() <= _KNOWN:
            unknown = next(name for name in value if name not in _KNOWN)
            raise _Refused(
                "unknown_field", f"{shown(unknown)} is not a field of a prompt; known are {', '.join(FIELDS)}"
            )
        content, answer = _content(value.get("content")), _answer(value.get("answer"))
        if content is None and key is None:
            raise _Refused("missing_content", "the row has neither `key` nor `content`")
        content_hash, question_hash = _identity(key, content, answer)
        features, lengths = _features(value.get("features"))
        content_json = None if content is None else orjson.dumps(content).decode()
        key, has_key = (content_hash, False) if key is None else (key, True)
        return PromptRow(
            place=place,
            key=key,
            has_key=has_key,
            has_content=content is not None or answer is not None,
            content_hash=content_hash,
            question_hash=question_hash,
            content=content_json,
            answer=answer,
            category=_label("category", value.get("category"), MAX_CATEGORY_LENGTH),
            split=_split(value.get("split")),
            features=features,
            feature_lengths=lengths,
            parent=_label("parent", value.get("parent"), MAX_KEY_LENGTH),
            meta=_meta(value.get("meta")),
            num_bytes=len(content_json or "") + len(answer or "") + len(features or ""),
        )
    except _Refused as refusal:
        return RowFault(place, refusal.code, refusal.detail, key)


_KNOWN = frozenset(FIELDS)


class _Refused(Exception):
    """Ends the reading of one row; becomes a RowFault."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code, self.detail = code, detail


def _name(field: str, value: object, limit: int) -> str:
    """A text that is not empty and fits into a path, a header or a line of a log."""
    if not isinstance(value, str):
        raise _Refused("wrong_type", f"{field} is a text, got {shown(value)}")
    if not value:
        raise _Refused("empty", f"{field} is empty: leave it out instead")
    if len(value) > limit:
        raise _Refused("too_long", f"{field} has {len(value)} characters, allowed are {limit}: {shown(value)}")
    if not value.isprintable():
        _refuse_unprintable(field, value)
    return value


def _refuse_unprintable(field: str, value: str) -> None:
    # Separators and unassigned characters pass; control characters and half surrogate pairs do not.
    if any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in value):
        raise _Refused("bad_text", f"{field} holds a control character or half a surrogate pair: {value[:64]!a}")


def _label(field: str, value: object, limit: int) -> str | None:
    return value if value is None or value == "" else _name(field, value, limit)


def _split(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _Refused("wrong_type", f"split is a text, got {shown(value)}")
    if value not in SPLITS:
        raise _Refused("bad_value", f"split is `train` or `heldout`, got {shown(value)}")
    return value


def _answer(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _Refused("wrong_type", f"answer is a text, got {shown(value)}")
    if len(value) > MAX_CONTENT_BYTES:
        raise _Refused("too_long", f"answer has {len(value)} characters, allowed are {MAX_CONTENT_BYTES}")
    if "\x00" in value:
        raise _Refused("bad_text", "answer holds a NUL character")
    # Blank is none: a CSV cell cannot say the difference.
    return value if value.strip() else None


def _content(value: object) -> Content | None:
    """A text, or a list of messages whose form is checked no further than identity needs."""
    if value is None:
        return None
    if isinstance(value, str):
        if not value.strip():
            raise _Refused("empty", "content is empty: leave it out and give a `key` if the caller keeps the text")
        return value
    if not isinstance(value, list):
        raise _Refused("wrong_type", f"content is a text or a list of chat messages, got {shown(value)}")
    if not value:
        raise _Refused("empty", "content is a list without messages")
    for place, message in enumerate(value):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _Refused("wrong_type", f"content.{place} is a message with a `role`, got {shown(message)}")
        if not isinstance(message.get("content"), str | list | None):
            raise _Refused(
                "wrong_type", f"content.{place}.content is a text or a list, got {shown(message['content'])}"
            )
        _check_plain(message, f"content.{place}")
    return value


def _identity(key: str | None, content: Content | None, answer: str | None) -> tuple[str, str | None]:
    try:
        if content is None:
            return hash_without_content(str(key), answer), None
        # A text's bytes in JSON are at least its characters: most are passed without being encoded here.
        if isinstance(content, list) or len(content) > MAX_CONTENT_BYTES // 6:
            size = len(orjson.dumps(content))
            if size > MAX_CONTENT_BYTES:
                raise _Refused("too_long", f"content has {size} bytes as JSON, allowed are {MAX_CONTENT_BYTES}")
        return hashes(content, answer)
    except (TypeError, UnicodeEncodeError) as error:
        # orjson says TypeError both for half a surrogate pair and for an integer beyond 64 bits.
        raise _Refused("bad_text", f"content or answer cannot be written as JSON in UTF-8: {error}") from error


def _features(value: object) -> tuple[str | None, dict[str, int] | None]:
    """JSON with every number a float, and the shape. A bare list is one vector without a name."""
    if value is None:
        return None, None
    named = {VECTOR: value} if isinstance(value, list) else value
    if not isinstance(named, dict):
        raise _Refused("wrong_type", f"features is an object of numbers or a list of numbers, got {shown(value)}")
    total = sum(len(v) if isinstance(v, list) else 1 for v in named.values())
    if total > MAX_FEATURES:
        raise _Refused("too_long", f"features holds {total} numbers, allowed are {MAX_FEATURES}")
    numbers: dict[str, float | list[float]] = {}
    lengths: dict[str, int] = {}
    for name in sorted(named):
        where = f"features.{shown(name)}" if name else "features"
        if name or named is value:
            _name("a feature's name", name, MAX_FEATURE_NAME_LENGTH)
        item = named[name]
        if isinstance(item, list):
            if not item:
                raise _Refused("empty", f"{where} is a vector without numbers")
            numbers[name] = [_number(f"{where}.{place}", number) for place, number in enumerate(item)]
            lengths[name] = len(item)
        else:
            numbers[name], lengths[name] = _number(where, item), 0
    if not numbers:
        return "", None
    return orjson.dumps(numbers.get(VECTOR, numbers)).decode(), lengths


def _number(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Refused("wrong_type", f"{where} is a number, got {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _Refused("not_finite", f"{where} is {shown(value)}: a feature is a finite number, leave it out instead")
    return number


def _meta(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _Refused("wrong_type", f"meta is an object, got {shown(value)}")
    if not value:
        return ""
    _check_plain(value, "meta")
    try:
        encoded = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, UnicodeEncodeError) as error:
        raise _Refused("bad_text", f"meta cannot be written as JSON in UTF-8: {error}") from error
    if len(encoded) > MAX_META_BYTES:
        raise _Refused("too_long", f"meta has {len(encoded)} bytes as JSON, allowed are {MAX_META_BYTES}")
    return encoded.decode()


def _check_plain(value: object, where: str, depth: int = 0) -> None:
    """Refuses numbers that are not finite, what JSON does not have (dates of a Parquet file), and deep nesting."""
    if depth > MAX_NESTING:
        raise _Refused("too_long", f"{where[:100]} is nested deeper than {MAX_NESTING}")
    if value is None or isinstance(value, str | bool | int):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _Refused("not_finite", f"{where[:100]} is {value!r}: use null")
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_plain(item, f"{where}.{name}", depth + 1)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            _check_plain(item, f"{where}.{place}", depth + 1)
    else:
        raise _Refused("wrong_type", f"{where[:100]} is not a JSON value: {shown(value)}")
