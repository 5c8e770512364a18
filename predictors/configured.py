"""What estimators with options of their own have in common: a dataclass of them, a name, and the policy's version.

Base of `rows.RowEstimator` and of the mixture. Knows nothing of rows.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar, Generic, Self, TypeVar

from predictors.base import Estimator, check_version, parse_options


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorConfig:
    """Options of an estimator: numbers, each with a default, checked when it is made."""


ConfigT = TypeVar("ConfigT", bound=EstimatorConfig)


class ConfiguredEstimator(Estimator, Generic[ConfigT]):
    """Base of estimators that are made from a configuration; a subclass names itself and its `config_type`."""

    name: ClassVar[str]

    def __init__(self, config: ConfigT) -> None:
        self._config = config
        self._version = 0

    @classmethod
    @abstractmethod
    def config_type(cls) -> type[ConfigT]:
        """Dataclass of the options."""

    @classmethod
    def default_options(cls) -> dict[str, float]:
        return asdict(cls.config_type()())

    @classmethod
    def from_options(cls, options: Mapping[str, float]) -> Self:
        return cls(parse_options(cls.config_type(), options, estimator=cls.name))

    def advance(self, policy_version: int) -> None:
        self._version = check_version(policy_version, self._version)
