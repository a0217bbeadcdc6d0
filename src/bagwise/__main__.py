"""``python -m bagwise`` is the command line."""

from bagwise.cli import main

main()
