"""The pictures of a report, one per file."""
