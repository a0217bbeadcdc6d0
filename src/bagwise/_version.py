"""The version, in the one place that the build, the certificate and `--version` read."""

__version__ = "0.1.0"
