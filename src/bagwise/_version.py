"""The version, read by the build, the certificate and `--version`."""

__version__ = "0.1.0"

SOFTWARE = f"bagwise {__version__}"
"""What files say made them."""

SOFTWARE_PATTERN = r"bagwise \d{1,4}(\.\d{1,4}){0,3}((a|b|rc|\.dev|\.post)\d{1,4})?"
"""What files of any version say made them, and nothing that could be a message."""
