"""What all tests need."""

import signal

import pytest

# What a script starts in the background inherits an ignored Ctrl-C and hands it on to every
# process it starts; the tests that press it would then test nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Where one of its assertions fails, pytest shows the values, as it does for those in a test.
pytest.register_assert_rewrite("cells")
