"""Whether all frameworks train the same thing: the certificate and its reference."""
