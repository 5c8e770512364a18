import itertools

import numpy as np
import pytest

from selector.sampling.randomness import Stream, stream


def first_bits(*key: int, name: Stream = Stream.AUDIT_ORDER) -> int:
    seed, purpose_code, index, refill = key
    return int(stream(seed, name, purpose_code, index, refill).integers(0, 2**63))


def test_equal_arguments_give_the_same_stream_whatever_was_drawn_before() -> None:
    first = stream(3, Stream.BLOCK_ORDER, 0, 17, 2)
    stream(3, Stream.AUDIT_ORDER, 0, 17, 2).random(1000)

    again = stream(3, Stream.BLOCK_ORDER, 0, 17, 2)

    np.testing.assert_array_equal(first.integers(0, 2**63, 50), again.integers(0, 2**63, 50))


def test_every_argument_changes_the_stream() -> None:
    keys = itertools.product([0, 1, 11], [0, 1], [0, 1, 11], [0, 1])
    values = {first_bits(*key, name=name) for key in keys for name in Stream}

    assert len(values) == 3 * 2 * 3 * 2 * len(Stream)


def test_digits_do_not_run_together() -> None:
    assert (
        len({first_bits(1, 11, 1, 1), first_bits(11, 1, 1, 1), first_bits(1, 1, 11, 1), first_bits(1, 1, 1, 11)}) == 4
    )


@pytest.mark.parametrize("seed", [-1, 2**80, 0])
def test_any_integer_is_a_seed(seed: int) -> None:
    assert first_bits(seed, 0, 0, 0) == first_bits(seed, 0, 0, 0)


def test_a_known_stream_still_gives_the_numbers_it_gave() -> None:
    # When this changes, no stored draw can be drawn again: raise the number in DOMAIN and say so in the changelog.
    rng = stream(0, Stream.SYSTEMATIC_START, 0, 0, 0)

    assert [int(x) for x in rng.integers(0, 2**40, 3)] == [61369481981, 56115225215, 233446329575]


def test_streams_of_neighbouring_batches_are_uniform_and_uncorrelated() -> None:
    num = 4000
    values = np.array([stream(0, Stream.SYSTEMATIC_START, 0, index, 0).random() for index in range(num)])

    # Standard errors of a mean and of a lag-1 correlation of independent uniforms.
    assert abs(values.mean() - 0.5) < 4 / np.sqrt(12 * num)
    assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 4 / np.sqrt(num)
