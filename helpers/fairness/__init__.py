"""Whether all frameworks train the same thing: the fairness check and its reference."""
