"""Run directories → tables and pictures."""
