"""What strangers hand us, one module a kind: each has its ``CASES``."""
