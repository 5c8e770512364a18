"""What engines of language models have in common: a ticket's prompt as token ids, an answer graded, identities.

`torch` and `vllm` use it. It knows a tokenizer by what it does, and imports no library that has one.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from api.schemas import Ticket
from trainer.errors import InvalidRequest
from trainer.graders import Grader
from trainer.reports import Status
from trainer.rollout.base import FinishReason, Rollout

logger = logging.getLogger(__name__)

TICKET_ID_PARTS = 6  # run, branch, purpose, index, refill, position


class Tokenizer(Protocol):
    """What is asked of a tokenizer, as those of transformers have it."""

    def __call__(self, text: str, *, add_special_tokens: bool) -> Any: ...

    def apply_chat_template(self, conversation: Any, *, add_generation_prompt: bool, tokenize: bool) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model wrote."""

    ids: list[int]  # the end token included, if it came
    logprobs: list[float]
    finish_reason: FinishReason


def prompts_of(
    tickets: Sequence[Ticket], tokenizer: Tokenizer, *, max_new_tokens: int, limit: int | None
) -> list[list[int]]:
    """The tickets' prompts as token ids: a text as it stands, chat messages in the tokenizer's template.

    Raises InvalidRequest for a ticket without content, without a token, or too long for a model of `limit` tokens.
    """
    prompts = []
    for ticket in tickets:
        ids = _ids(ticket, tokenizer)
        if not ids:
            raise InvalidRequest(
                f"ticket {ticket.ticket}: prompt {ticket.prompt!r} is empty, and the model needs a token"
            )
        if limit is not None and len(ids) + max_new_tokens > limit:
            raise InvalidRequest(
                f"ticket {ticket.ticket}: prompt {ticket.prompt!r} has {len(ids)} tokens, and with "
                f"{max_new_tokens} more it passes the model's {limit}: take it out of the pool"
            )
        prompts.append(ids)
    return prompts


def _ids(ticket: Ticket, tokenizer: Tokenizer) -> list[int]:
    content = ticket.content
    if content is None:
        raise InvalidRequest(
            f"ticket {ticket.ticket} came without its prompt's text: draw with include=['content', 'answer']"
        )
    is_text = isinstance(content, str)
    text = content if is_text else tokenizer.apply_chat_template(content, add_generation_prompt=True, tokenize=False)
    return list(tokenizer(str(text), add_special_tokens=is_text).input_ids)


def graded(
    grader: Grader, ticket: Ticket, prompt_ids: list[int], answer: Answer, text: str, *, seconds_per_token: float
) -> Rollout:
    """The rollout of one answer: unscored where the grader has no score, an error where it fails."""
    outcome: float | None = None
    status: Status = "unscored"
    try:
        outcome = grader(text, ticket.answer)
    except Exception:
        # A grader meets whatever a model writes. One crash costs one rollout, by name, and not the run.
        logger.warning("ticket %s: the grader failed on an answer", ticket.ticket, exc_info=True)
        status = "error"
    if outcome is not None:
        status = "ok" if answer.finish_reason == "stop" else "truncated"
    return Rollout(
        outcome=outcome,
        tokens=len(answer.ids),
        seconds=seconds_per_token * len(answer.ids),
        status=status,
        text=text,
        prompt_ids=prompt_ids,
        completion_ids=answer.ids,
        logprobs=answer.logprobs,
        finish_reason=answer.finish_reason,
    )


def identity(ticket_id: str) -> str:
    """What of a ticket's id a restore leaves as it was: purpose, index, refill and position.

    Ids derive from these with the run and the branch before them. Run and branch are left out, so that a run that was
    restored goes on as the uninterrupted one, and two runs on one seed start alike. Any other text counts as a whole.
    """
    parts = ticket_id.split(":")
    return ":".join(parts[2:]) if len(parts) == TICKET_ID_PARTS else ticket_id


def end_ids(*configs: Any) -> list[int]:
    """End tokens by a model's configurations and its tokenizer, each of which may name one, several or none."""
    found: set[int] = set()
    for value in (getattr(config, "eos_token_id", None) for config in configs):
        found.update([] if value is None else [value] if isinstance(value, int) else value)
    return sorted(found)
