"""Errors of the selection core.

SelectorError
├── UnknownConfig        a preset, estimator or option that does not exist, or a value out of range
├── BatchConflict        the batch exists and was drawn with other parameters
├── BranchSuperseded     a draw or report names a branch that a restore has replaced
├── BranchUnknown        a branch that does not exist yet
├── RevisitImpossible    the revisit period asked for needs more places than the batches have
├── UnknownCheckpoint    a restore to a step that was never saved
├── UnknownBatch         reading a batch that was never drawn
├── StepConflict         the step was recorded with other values
├── ReportInvalid        a report that cannot be read: a rollout without a number where it needs one
├── EstimatorFixed       an attempt to change the estimator in the middle of a run
├── RunComplete          a write to a run that has ended
└── SnapshotDamaged      a snapshot whose checksum or shape is wrong

Each has a stable `code`; only `api.errors` knows status numbers.
"""


class SelectorError(Exception):
    """Root of the tree; `code` is stable, the message names the value and the remedy."""

    code = "selector_error"


class UnknownConfig(SelectorError):
    """The configuration names something that does not exist or is out of range."""

    code = "invalid_config"


class BatchConflict(SelectorError):
    """The same batch was drawn before with another size, group size, divisor, `short` or `allow_repeat`."""

    code = "batch_conflict"


class BranchSuperseded(SelectorError):
    """A restore began a new branch; the caller still works on the old one."""

    code = "branch_superseded"


class BranchUnknown(SelectorError):
    """The caller names a branch that no restore has begun."""

    code = "unknown_branch"


class RevisitImpossible(SelectorError):
    """`revisit_draws` is smaller than the batches allow."""

    code = "revisit_impossible"


class UnknownCheckpoint(SelectorError):
    """No surviving checkpoint has this step."""

    code = "unknown_checkpoint"


class UnknownBatch(SelectorError):
    """No batch was drawn under this branch, purpose, index and refill."""

    code = "unknown_batch"


class StepConflict(SelectorError):
    """The step was recorded before with other values; the first stands."""

    code = "step_conflict"


class ReportInvalid(SelectorError):
    """A report that cannot be read; nothing of it was applied."""

    code = "invalid_report"


class EstimatorFixed(SelectorError):
    """The estimator and its options belong to a run for life, as its beliefs are made by it."""

    code = "estimator_fixed"


class RunComplete(SelectorError):
    """The run has ended; a restore reopens it."""

    code = "run_complete"


class SnapshotDamaged(SelectorError):
    """A snapshot fails its checksum or does not fit this version's schema; rebuild it from the log."""

    code = "snapshot_damaged"
