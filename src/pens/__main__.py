"""`python -m pens`."""

from pens.cli import main

main()
