"""What records say, side by side: figures, tables, charts, report. Reads records only."""
