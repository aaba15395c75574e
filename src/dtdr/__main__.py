"""``python -m dtdr``: the command line."""

from dtdr.cli import main

main()
