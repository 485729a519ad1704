"""The fairness check, which tests that all frameworks train the same thing, and its reference."""
