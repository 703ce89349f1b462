"""What Keepsake costs, measured on the real system beside what cannot be saved. `python -m tests.bench --help`."""
