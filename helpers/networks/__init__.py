"""Networks and weights that all frameworks begin with, as NumPy arrays."""
