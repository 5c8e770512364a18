"""Names under which estimators look for numbers from outside: signals that a trainer pushes, features of a pool.

Read by the estimators and by whoever takes such numbers in. Any other name is a feature like every other.
"""

VALUE = "value"
"""A belief of the pass rate under the policy at the version it was made at, such as PCL's value network gives."""

WEAK, STRONG = "weak", "strong"
"""Pass rates of a weak and of a strong reference model, as BOTS reads them."""

RATES = (VALUE, WEAK, STRONG)
"""These are pass rates, so in [0, 1]."""
