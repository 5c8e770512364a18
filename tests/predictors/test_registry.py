import pytest

from predictors.registry import ESTIMATORS, build_estimator, default_options


def test_an_unknown_estimator_is_refused_with_the_choices() -> None:
    with pytest.raises(
        ValueError, match="no estimator is called 'kalman'; there are beta_with_reference, category, disc"
    ):
        build_estimator("kalman", {})
    with pytest.raises(ValueError, match="no estimator is called 'kalman'"):
        default_options("kalman")


def test_an_unknown_option_is_refused_with_the_choices() -> None:
    with pytest.raises(
        ValueError, match=r"'discounted_beta' has no option 'lambda'; its options are discount, process"
    ):
        build_estimator("discounted_beta", {"lambda": 0.5})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("discounted_beta", {"discount": 1.01}, r"discount must be in \[0, 1\], got 1.01"),
        ("discounted_beta", {"process_noise": -1e-9}, "process_noise must be in"),
        ("discounted_beta", {"prior_successes": 1.0}, "must both be"),
        ("discounted_beta", {"prior_successes": 1.0, "prior_failures": 0.01}, "must both be"),
        ("discounted_beta", {"prior_successes": -1.0, "prior_failures": -1.0}, "must both be"),
        ("beta_with_reference", {"forgetting": 0.0}, "forgetting must be in"),
        ("beta_with_reference", {"reference_share": 1.1}, "reference_share must be in"),
        ("beta_with_reference", {"reference_rollouts": -1.0}, "reference_rollouts must be in"),
        ("beta_with_reference", {"prior_failures": 0.0}, "prior_failures must be in"),
        ("category", {"learning_rate": 0.0}, "learning_rate must be in"),
        ("hmm", {"discount": 0.96}, r"discount unless it is 1 must be in \[0, 0.95\], got 0.96"),
        ("hmm", {"group_size": 1.0}, "group_size must be in"),
        ("kalman_logit", {"process_noise": -1.0}, "process_noise must be in"),
        ("last_mean", {"prior_successes": 0.0}, "prior_successes must be in"),
        ("streak", {"prior_successes": 2000.0}, "prior_successes must be in"),
        ("streak", {"easy_mean": 0.4}, "easy_mean must be in"),
        ("streak", {"hard_mean": 0.6}, "hard_mean must be in"),
        ("streak", {"easy_mean": 0.5, "hard_mean": 0.5}, "hard_mean must be below easy_mean"),
        ("kalman_arcsine", {"process_noise": 0.2}, "process_noise must be in"),
        ("kalman_arcsine", {"drift": 1.0}, "drift must be in"),
        ("kalman_arcsine", {"memory_groups": -1.0}, "memory_groups must be in"),
        ("value", {"own_share": 1.5}, "own_share must be in"),
        ("value", {"discount": -0.5}, "discount must be in"),
        ("mixture", {"process_noise": 0.0}, "process_noise must be in"),
        ("mixture", {"memory_groups": 0.0}, "memory_groups must be in"),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(name: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_estimator(name, options)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "0.5", None])
def test_an_option_that_is_no_finite_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="option 'discount' of estimator 'discounted_beta' must be a finite number"):
        build_estimator("discounted_beta", {"discount": value})


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_defaults_build_the_default_estimator(name: str) -> None:
    options = default_options(name)

    assert options
    assert all(isinstance(value, float) for value in options.values())
    built, plain = build_estimator(name, options).state(), build_estimator(name, {}).state()
    assert built.keys() == plain.keys()
    assert all((built[key] == plain[key]).all() for key in built)


def test_the_options_that_users_may_set_are_these() -> None:
    assert {name: sorted(default_options(name)) for name in ESTIMATORS} == {
        "beta_with_reference": [
            "forgetting",
            "prior_failures",
            "prior_successes",
            "reference_rollouts",
            "reference_share",
        ],
        "category": ["learning_rate"],
        "discounted_beta": ["discount", "prior_failures", "prior_successes", "process_noise"],
        "features": ["memory_groups", "process_noise"],
        "hmm": ["discount", "group_size"],
        "kalman_arcsine": ["drift", "memory_groups", "process_noise"],
        "kalman_logit": ["process_noise"],
        "last_mean": ["prior_failures", "prior_successes"],
        "mixture": ["memory_groups", "process_noise"],
        "streak": ["easy_mean", "hard_mean", "prior_failures", "prior_successes"],
        "value": ["discount", "own_share", "prior_failures", "prior_successes", "process_noise"],
    }
