"""Data sets, and how peers share them."""
