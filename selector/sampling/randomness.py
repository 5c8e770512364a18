"""Counter-based randomness: every use of chance in a draw has its own stream, named by what it is for.

Called by `draw` and `revisits`. A stream depends on (run seed, use, purpose, index, refill) and on nothing else: no
branch, no time, no process, no earlier draw. So a batch drawn again after a restore, or by an auditor, meets the same
randomness, and the value of one stream says nothing about another.
"""

import hashlib
from enum import StrEnum

import numpy as np

KEY_BYTES = 16  # Philox takes a key of 128 bits
DOMAIN = b"midband stream 1"  # at most 16 bytes; a change of any design that reads the streams raises the number


class Stream(StrEnum):
    """What the randomness is for; two uses in one batch never share a stream."""

    AUDIT_COUNT = "audit_count"  # the u that rounds the audit share to m
    REVIEW_COUNT = "review_count"  # the u that rounds the review share to r
    BLOCK_ORDER = "block_order"  # rotation and order of blocks of the systematic design
    SYSTEMATIC_START = "systematic_start"  # the one uniform number of the systematic design
    AUDIT_ORDER = "audit_order"  # the uniform permutation that the audit reads from
    UNIFORM_ORDER = "uniform_order"  # simple random sampling: probe, held-out, control and audit batches
    TICKET_ORDER = "ticket_order"  # order in which the tickets are handed out
    CANDIDATES = "candidates"  # the rows among which the largest utilities are taken
    KEEP = "keep"  # which rows a design that looks at each by itself keeps
    THIN = "thin"  # which of the kept rows stay where they are too many
    BELIEF_DRAW = "belief_draw"  # the pass rates that Thompson sampling draws from the beliefs
    BELIEF_SHUFFLE = "belief_shuffle"  # whose belief a prompt is judged by in the control that mixes them up
    REVISIT_ORDER = "revisit_order"  # keyed positions of prompts for revisits; the same for a whole run


def stream(seed: int, name: Stream, purpose_code: int, index: int, refill: int) -> np.random.Generator:
    """The generator for one use in one batch: Philox keyed by BLAKE2b of the five values.

    Any integers are accepted, of any size. Streams with different arguments are independent as far as 128 bits of a
    cryptographic hash can make them.
    """
    text = f"{seed}/{name}/{purpose_code}/{index}/{refill}".encode()
    key = hashlib.blake2b(text, digest_size=KEY_BYTES, person=DOMAIN).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(key, dtype="<u8").astype(np.uint64)))
