# SPDX-License-Identifier: Apache-2.0
"""`python -m pens`."""

from pens_fl import main

main()
