import numpy as np

from selector.sampling.inclusion import Inclusion


def test_chances_of_rows_are_those_of_the_pool_in_either_form() -> None:
    eligible_N = np.array([True, True, False, True])
    from_units = Inclusion.of_units(np.array([0, 2**39, 0, 2**40]), eligible_N, 0.5)
    written = Inclusion.of(np.array([0.5, 0.75, 0.0, 2.5]))  # more than one ticket, where prompts repeat
    rows = np.array([3, 0])

    assert from_units.all_N.tolist() == [0.5, 0.75, 0.0, 1.0]
    assert from_units.at(rows).tolist() == [1.0, 0.5]
    assert written.all_N.tolist() == [0.5, 0.75, 0.0, 2.5]
    assert written.at(rows).tolist() == [2.5, 0.5]
    assert len(from_units) == len(written) == 4


def test_an_empty_pool_has_no_chances() -> None:
    nothing = Inclusion.of_units(np.zeros(0, np.int64), np.zeros(0, bool), 0.0)

    assert len(nothing) == len(nothing.all_N) == len(nothing.at(np.zeros(0, np.int64))) == 0
