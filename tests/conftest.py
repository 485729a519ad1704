"""What all tests need."""

import signal

# What a script starts in the background inherits an ignored Ctrl-C and hands it on to every
# process it starts; the tests that press it would then test nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)
