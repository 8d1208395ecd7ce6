"""The sections of a report, one per file."""
