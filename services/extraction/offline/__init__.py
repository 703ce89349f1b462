"""The offline extractor: English, the person's own first-person statements, by a table of frames. Precise rather than complete.

`segments` leaves what the person says of themself, `frames` is the table of what counts as a fact, `dates` resolves when, `observe` turns
chats into candidates and `reflect` compares these with what is known. All of it is pure, and linear in the text.
"""

from services.extraction.offline.observe import observe
from services.extraction.offline.reflect import reflect

__all__ = ["observe", "reflect"]
