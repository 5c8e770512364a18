"""API keys as values: what a key looks like, what it lets its holder do, and how one is recognised.

The key commands make them, `api.keyring` checks with them, `api.auth` asks what they allow. It knows no HTTP, no
database and no clock. A key is 192 random bits, so that one SHA-256 hides it: a slower hash would protect nothing more.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from enum import StrEnum

PREFIX_BYTES = 5  # random; the prefix tells keys apart and opens nothing
SECRET_BYTES = 24
FORM = re.compile(rf"(?P<prefix>mb_[0-9a-f]{{{2 * PREFIX_BYTES}}})(?:_[0-9a-f]{{{2 * SECRET_BYTES}}})?")


class Scope(StrEnum):
    """What calls a key opens. None of them includes another."""

    READ = "read"  # look at pools, prompts, runs, batches, the audit, costs, the log and the metrics
    DRAW = "draw"  # draw batches
    REPORT = "report"  # report rollouts, steps, signals, and name checkpoints
    MANAGE = "manage"  # make and change pools and runs, quarantine, restore, complete


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What one caller may do. Bound to neither pools nor runs, it reaches all of them."""

    prefix: str | None  # of the key; None where no key exists
    scopes: frozenset[Scope]
    pools: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()

    @property
    def bound(self) -> bool:
        return bool(self.pools or self.runs)

    @property
    def bound_by_pool(self) -> bool:
        """Whether it depends on its pool if a run is within reach: named runs come before their pools."""
        return bool(self.pools) and not self.runs

    def reaches_pool(self, pool: str) -> bool:
        """A key bound to runs alone reaches no pool: what it did there would touch the pool's other runs."""
        return not self.bound or pool in self.pools

    def reaches_run(self, run: str, pool: str | None) -> bool:
        """`pool` is the run's own; it is looked at only where `bound_by_pool` says so."""
        if self.bound_by_pool:
            return pool in self.pools
        return not self.runs or run in self.runs


EVERYTHING = Access(prefix=None, scopes=frozenset(Scope))  # while no key exists, on this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key as stored: all but its secret. Times are seconds since 1970 in UTC."""

    access: Access
    digest: str  # SHA-256 of the whole key, in hex
    name: str | None  # for people: what it is for
    created_at: float
    expires_at: float | None
    revoked_at: float | None

    @property
    def prefix(self) -> str:
        return str(self.access.prefix)

    def fault(self, now: float) -> str | None:
        """Why it opens nothing any more, in words; None while it is in force."""
        if self.revoked_at is not None:
            return "was revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "has expired"
        return None


def new_secret() -> tuple[str, str]:
    """(prefix, whole key) of a new key. The whole key is shown once and kept nowhere."""
    prefix = f"mb_{secrets.token_hex(PREFIX_BYTES)}"
    return prefix, f"{prefix}_{secrets.token_hex(SECRET_BYTES)}"


def digest_of(key: str) -> str:
    """What is stored of a key, as hex."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def prefix_of(text: str) -> str | None:
    """The prefix of a prefix or of a whole key; None for any other text."""
    found = FORM.fullmatch(text)
    return None if found is None else found["prefix"]


def recognised(presented: str, known: Key | None) -> bool:
    """Whether a text is this key, in time that tells nothing of where they differ, or of whether there is one."""
    digest = known.digest if known is not None else NO_DIGEST
    return hmac.compare_digest(digest_of(presented), digest) and known is not None


NO_DIGEST = "0" * 64  # what a key that nobody has is compared with
