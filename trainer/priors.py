"""Prior rollouts: what probes of a ticket's prompt have made, fetched so that only the rest of a group is generated.

`trainer.grpo` asks for them before it rolls a batch out, in runs with a rollout store. Their log-probabilities are
those of the weights that made them, which the update weighs them by where they are not the weights of now. What has
expired, is too old, or came without tokens is left out, and its ticket's group is generated whole.
"""

from collections.abc import Mapping, Sequence

from api.schemas import MAX_FETCHED, FetchedRollout, Ticket
from trainer.client import Client
from trainer.errors import Expired, RequestRefused
from trainer.rollout.base import Rollout

TOO_LARGE = 413


def prior_rollouts(
    client: Client, run: str, tickets: Sequence[Ticket], *, version: int, max_lag: int
) -> dict[str, tuple[Rollout, ...]]:
    """The prior rollouts of those tickets that have any, by ticket: all of a ticket's, or none.

    version: of the weights that are about to be updated; max_lag: how many versions older a rollout may be. Prompt ids
    are left out, as the rest of the group brings them.
    """
    wanted = {
        ticket.ticket: [prior.id for prior in ticket.prior_rollouts]
        for ticket in tickets
        if ticket.prior_rollouts
        and all(0 <= version - prior.policy_version <= max_lag for prior in ticket.prior_rollouts)
    }
    fetched = _fetch(client, run, list(wanted.values()))
    found = {name: [fetched.get(prior_id) for prior_id in ids] for name, ids in wanted.items()}
    usable = {name: [_rollout(one) for one in of if one is not None] for name, of in found.items() if None not in of}
    return {
        name: tuple(rollout for rollout in rollouts if rollout is not None)
        for name, rollouts in usable.items()
        if None not in rollouts
    }


def _fetch(client: Client, run: str, ids_K: Sequence[Sequence[str]]) -> Mapping[str, FetchedRollout]:
    """Those of these tickets' rollouts that are there, by id. Where some have expired, halves are asked for."""
    ids = [one for ids in ids_K for one in ids]
    if not ids:
        return {}
    if len(ids) <= MAX_FETCHED:
        try:
            return {one.id: one for one in client.fetch_rollouts(run, ids)}
        except Expired:
            pass
        except RequestRefused as error:
            if error.status != TOO_LARGE:
                raise
    if len(ids_K) == 1:
        return {}
    half = len(ids_K) // 2
    return {**_fetch(client, run, ids_K[:half]), **_fetch(client, run, ids_K[half:])}


def _rollout(fetched: FetchedRollout) -> Rollout | None:
    """As an engine would have given it; None without its tokens and their log-probabilities."""
    said = fetched.completion
    if not said.token_ids or said.logprobs is None:
        return None
    return Rollout(
        outcome=fetched.outcome,
        reward=fetched.reward,
        tokens=fetched.tokens,
        status=fetched.status,
        text=said.text,
        completion_ids=said.token_ids,
        logprobs=said.logprobs,
        made_by=fetched.policy_version,
    )
