"""The command's work: plan an experiment, run its notebooks in their kernels, watch, go on."""
