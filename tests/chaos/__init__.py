"""Faults at random moments against the real system, and a checker of what is left."""
