"""`python -m deploy dead-letters list | show | replay`: records that could not be staged, and another try for them."""

from deploy.dead_letters.command import add_arguments, run
from deploy.dead_letters.topic import Found, read

__all__ = ["Found", "add_arguments", "read", "run"]
