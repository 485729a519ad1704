"""What a notebook calls: setup, data, devices, clocks, metrics, checkpoint, record."""
