"""Compare runs in numbers, tables, charts and a report, from their records alone."""
