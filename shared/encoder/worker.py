"""Runs a model in one thread, shortest text first, with a short queue in front."""

import asyncio
import bisect
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from shared.encoder.model import MAX_TEXT, Model, Vector

T = TypeVar("T")


class EncoderBusyError(Exception):
    """More texts are waiting than could be encoded in time."""


@dataclass(order=True)
class _Job:
    """Ordered by characters, then by age."""

    size: int
    number: int
    work: Callable[[], Any] = field(compare=False)
    done: "asyncio.Future[Any]" = field(compare=False)


class Encoder:
    """One model, one thread, one encoding in flight; belongs to one event loop.

    Waiting texts are taken shortest first, and a full queue turns away its longest: fifty messages of 1 MB (cut to 1,000 characters,
    5 ms each) then delay a short one by one encoding, not by fifty.
    """

    def __init__(self, model: Model, *, max_waiting: int = 32) -> None:
        self.model = model
        self._max_waiting = max_waiting
        self._waiting: list[_Job] = []
        self._numbers = count()
        self._running = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="encoder")

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def encode_query(self, text: str) -> Vector:
        """The normalised vector of a message; its first 1,000 characters are read. Raises EncoderBusyError, ModelUnavailableError."""
        text = text[:MAX_TEXT]
        return await self._run(lambda: self.model.encode_query(text), len(text))

    async def encode_passages(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors of facts. Keep them below 1,000 characters together, so that no message waits longer than for another."""
        return await self._run(lambda: self.model.encode_passages(texts), sum(len(text) for text in texts))

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return await self._run(lambda: self.model.count_tokens(texts), sum(len(text) for text in texts))

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T], size: int) -> T:
        job = _Job(size, next(self._numbers), work, asyncio.get_running_loop().create_future())
        self._admit(job)
        self._start_next()
        try:
            result: T = await job.done
            return result
        except asyncio.CancelledError:
            if job in self._waiting:
                self._waiting.remove(job)
            raise

    def _admit(self, job: _Job) -> None:
        bisect.insort(self._waiting, job)
        if len(self._waiting) > self._max_waiting:
            longest = self._waiting.pop()
            if longest is job:
                raise EncoderBusyError
            if not longest.done.done():
                longest.done.set_exception(EncoderBusyError())

    def _start_next(self) -> None:
        if self._running or not self._waiting:
            return
        job = self._waiting.pop(0)
        self._running = True
        loop = job.done.get_loop()
        self._thread.submit(job.work).add_done_callback(
            lambda finished: loop.call_soon_threadsafe(self._finish, job, finished)
        )

    def _finish(self, job: _Job, finished: "Future[Any]") -> None:
        self._running = False
        self._start_next()
        if job.done.done():
            return
        error = finished.exception()
        if error is None:
            job.done.set_result(finished.result())
        else:
            job.done.set_exception(error)
