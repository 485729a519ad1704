"""The command's work: plan a batch, run its notebooks in their kernels, watch, go on."""
