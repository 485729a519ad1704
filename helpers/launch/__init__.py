"""Start a run's ranks on one or several machines, and coordinate them."""
