"""``python -m prefdata``."""

from prefdata.cli import main

main()
