"""Plan an experiment, run its notebooks in their environments, watch and resume them."""
