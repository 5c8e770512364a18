"""Which midband this is: shown to callers and kept in snapshots, whose states are bit-identical on one version only."""

from importlib import metadata

UNKNOWN_VERSION = "0+unknown"  # run from a folder that was never installed


def installed_version() -> str:
    """The installed distribution's version."""
    try:
        return metadata.version("midband")
    except metadata.PackageNotFoundError:
        return UNKNOWN_VERSION
