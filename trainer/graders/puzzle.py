"""Right as reasoning-gym says: each of its puzzles scores an answer by rules of its own.

The prompt's answer is the puzzle itself as JSON, with `answer` and `metadata`, as the library makes it. The library
comes with the extra `reasoning-gym` and is imported at the first call.
"""

import json
import re

from trainer.errors import MissingExtra

TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def puzzle(completion: str, answer: str | None) -> float | None:
    """The library's score in [0, 1] of what stands in the last `<answer>` tags, or of the whole completion without any;
    None without an answer.

    Raises ValueError if the answer is no such JSON, MissingExtra without the library.
    """
    if answer is None:
        return None
    try:
        entry = json.loads(answer)
        name = entry["metadata"]["source_dataset"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            "the answer is no puzzle of reasoning-gym: it needs JSON with metadata.source_dataset"
        ) from error
    try:
        from reasoning_gym import get_score_answer_fn
    except ImportError as error:
        raise MissingExtra("grader 'reasoning-gym' needs the library: pip install 'midband[reasoning-gym]'") from error
    tagged = TAGGED.findall(completion)
    return float(get_score_answer_fn(name)((tagged[-1] if tagged else completion).strip(), entry))
