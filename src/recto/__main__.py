"""`python -m recto` is `recto`."""

from recto.cli.main import main

main()
