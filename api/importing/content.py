"""What makes two prompts the same: the canonical form of a prompt's content, and its hashes.

Used by the import to give each row its identity; anyone can compute the same. Canonical form: line ends are \\n,
white space at the end of each line and of the whole text is dropped, in the text or in the text of each chat message.
Its hash is SHA-256 of the UTF-8 JSON {"answer":...,"content":...} without spaces and with sorted names, an answer
treated like a text and null where there is none.
"""

import hashlib

import orjson

# A text, or chat messages: objects with a `role` and a `content` that is a text or a list of parts.
Content = str | list[dict[str, object]]


def canonical_text(text: str) -> str:
    """The text without what no reader sees: white space before line ends and at the very end, and the kind of line end.

    >>> canonical_text("2 + 2 = ? \\r\\n\\n")
    '2 + 2 = ?'
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\n" in text:
        text = "\n".join([line.rstrip() for line in text.split("\n")])
    return text.rstrip()


def canonical_content(content: Content) -> Content:
    """The content with each text in canonical form; names and order of messages are kept."""
    if isinstance(content, str):
        return canonical_text(content)
    return [_canonical_message(message) for message in content]


def hashes(content: Content, answer: str | None) -> tuple[str, str]:
    """(hash of content and answer, hash of the content alone), in hex. All answers to one question share the second.

    Raises TypeError (orjson's) for what JSON cannot hold and UnicodeEncodeError for a text with half a surrogate pair.
    """
    question = orjson.dumps(canonical_content(content), option=orjson.OPT_SORT_KEYS)
    return _content_hash(question, answer), hashlib.sha256(question).hexdigest()


def hash_without_content(key: str, answer: str | None) -> str:
    """The hash of a prompt whose text the caller keeps: its key stands in for the content."""
    canonical = None if answer is None else canonical_text(answer)
    return hashlib.sha256(
        orjson.dumps({"answer": canonical, "content": None, "key": key}, option=orjson.OPT_SORT_KEYS)
    ).hexdigest()


def _canonical_message(message: dict[str, object]) -> dict[str, object]:
    text = message.get("content")
    return {**message, "content": canonical_text(text)} if isinstance(text, str) else message


def _content_hash(question: bytes, answer: str | None) -> str:
    canonical = b"null" if answer is None else orjson.dumps(canonical_text(answer))
    return hashlib.sha256(b'{"answer":' + canonical + b',"content":' + question + b"}").hexdigest()
