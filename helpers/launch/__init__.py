"""Many machines: starts a run's ranks by an engine that is there, and hands them their work."""
