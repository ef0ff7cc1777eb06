"""`python -m playhead`."""

from playhead.cli import main

main()
