"""`python -m pens`."""

from pens_fl import main

main()
