"""Compare the records of runs in figures, tables, charts and a report; only records are read."""
