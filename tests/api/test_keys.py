"""Keys as values: their form, how they are recognised, and what they reach."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.keys import EVERYTHING, Access, Key, Scope, digest_of, new_secret, prefix_of, recognised

NAMES = st.sampled_from(["p", "q"])


def made(prefix: str, key: str, *, expires_at: float | None = None, revoked_at: float | None = None) -> Key:
    access = Access(prefix=prefix, scopes=frozenset(Scope))
    return Key(
        access=access, digest=digest_of(key), name=None, created_at=0.0, expires_at=expires_at, revoked_at=revoked_at
    )


def test_a_key_begins_with_its_prefix_and_is_never_made_twice() -> None:
    made = [new_secret() for _ in range(200)]
    assert all(re.fullmatch(prefix + "_[0-9a-f]{48}", key) for prefix, key in made)
    assert len({prefix for prefix, _ in made}) == len({key for _, key in made}) == 200


def test_the_digest_is_that_of_a_known_text() -> None:
    assert digest_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_prefix_is_found_in_itself_and_in_a_whole_key_and_in_nothing_else() -> None:
    prefix, key = new_secret()
    assert prefix_of(prefix) == prefix_of(key) == prefix
    for text in ("", "mb_", prefix[:-1], key[:-1], key + "0", f" {key}", key.upper(), "x" * 100_000):
        assert prefix_of(text) is None, text


def test_a_key_is_recognised_by_all_of_it() -> None:
    prefix, key = new_secret()
    known = made(prefix, key)
    assert recognised(key, known)
    changed = key[:-1] + ("0" if key[-1] != "0" else "1")
    for text in (prefix, changed, key[:-1], known.digest, "", "\ud800"):
        assert not recognised(text, known), text
    assert not recognised(key, None)
    assert not recognised("", None)


def test_a_key_is_in_force_until_it_expires_or_is_revoked() -> None:
    assert made("a", "k").fault(1e12) is None
    assert made("a", "k", expires_at=10.0).fault(9.9) is None
    assert made("a", "k", expires_at=10.0).fault(10.0) == "has expired"
    assert made("a", "k", revoked_at=5.0).fault(0.0) == "was revoked"
    assert made("a", "k", expires_at=10.0, revoked_at=5.0).fault(11.0) == "was revoked"


def test_without_keys_everything_is_reached() -> None:
    assert EVERYTHING.scopes == set(Scope)
    assert EVERYTHING.reaches_pool("p")
    assert EVERYTHING.reaches_run("r", None)


@pytest.mark.parametrize(
    ("pools", "runs", "pool_p", "run_r_on_p", "run_s_on_p", "run_r_on_q"),
    [
        ("", "", True, True, True, True),
        ("p", "", True, True, True, False),
        ("", "r", False, True, False, True),
        ("p", "r", True, True, False, True),
        ("q", "s", False, False, True, False),
    ],
)
def test_what_a_binding_reaches(
    pools: str, runs: str, pool_p: bool, run_r_on_p: bool, run_s_on_p: bool, run_r_on_q: bool
) -> None:
    access = Access(prefix="a", scopes=frozenset(Scope), pools=frozenset(pools), runs=frozenset(runs))
    assert (
        access.reaches_pool("p"),
        access.reaches_run("r", "p"),
        access.reaches_run("s", "p"),
        access.reaches_run("r", "q"),
    ) == (pool_p, run_r_on_p, run_s_on_p, run_r_on_q)


@given(pools=st.frozensets(NAMES), runs=st.frozensets(NAMES), run=NAMES, pool=NAMES)
def test_a_bound_key_reaches_nothing_that_it_is_not_bound_to(
    pools: frozenset[str], runs: frozenset[str], run: str, pool: str
) -> None:
    access = Access(prefix="a", scopes=frozenset(), pools=pools, runs=runs)
    if access.bound:
        assert not access.reaches_pool(pool) or pool in pools
        assert not access.reaches_run(run, pool) or run in runs or (not runs and pool in pools)
    if not access.bound_by_pool:
        assert access.reaches_run(run, None) == access.reaches_run(run, pool)
