"""The queue before the model: who goes first, who is turned away, what a caller that gives up leaves."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from shared.encoder import MAX_TEXT, Encoder, EncoderBusyError, ModelUnavailableError, Vector
from tests.support.waiting import until_async


class SlowModel:
    """Encodes when `go` is set, and remembers what."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.seen: list[str] = []

    def encode_query(self, text: str) -> Vector:
        self.seen.append(text)
        if not self.go.wait(10):
            raise TimeoutError
        if text == "broken":
            raise ModelUnavailableError("broken")
        return np.full(2, len(text), dtype=np.float32)


@pytest.fixture
def model() -> SlowModel:
    return SlowModel()


@pytest.fixture
async def encoder(model: SlowModel) -> AsyncIterator[Encoder]:
    stand_in: Any = model
    encoder = Encoder(stand_in, max_waiting=3)
    yield encoder
    model.go.set()
    encoder.close()


async def start(encoder: Encoder, *texts: str) -> list[asyncio.Task[Vector]]:
    """The first is being encoded, the others wait."""
    tasks = [asyncio.create_task(encoder.encode_query(text)) for text in texts]
    await until_async(lambda: encoder.waiting == len(texts) - 1)
    return tasks


async def test_shortest_waiting_text_goes_first(model: SlowModel, encoder: Encoder) -> None:
    tasks = await start(encoder, "first", "x" * 30, "x" * 10, "x" * 20)
    model.go.set()
    vectors = await asyncio.gather(*tasks)
    assert model.seen == ["first", "x" * 10, "x" * 20, "x" * 30]
    assert [vector[0] for vector in vectors] == [5, 30, 10, 20]


async def test_full_queue_turns_a_longer_text_away_at_once(model: SlowModel, encoder: Encoder) -> None:
    await start(encoder, "first", "a", "b", "c")
    with pytest.raises(EncoderBusyError):
        await encoder.encode_query("longer")


async def test_full_queue_gives_its_longest_place_to_a_shorter_text(model: SlowModel, encoder: Encoder) -> None:
    _, longest, *_ = await start(encoder, "first", "x" * 30, "x" * 10, "x" * 20)
    short = asyncio.create_task(encoder.encode_query("hi"))
    with pytest.raises(EncoderBusyError):
        await longest
    model.go.set()
    assert (await short)[0] == 2


async def test_caller_that_gives_up_leaves_the_queue(model: SlowModel, encoder: Encoder) -> None:
    _, waiting = await start(encoder, "first", "waiting")
    waiting.cancel()
    await until_async(lambda: encoder.waiting == 0)
    model.go.set()
    await encoder.encode_query("later")
    assert model.seen == ["first", "later"]


async def test_caller_that_gives_up_while_encoded_does_not_stop_the_next(model: SlowModel, encoder: Encoder) -> None:
    first, second = await start(encoder, "first", "second")
    first.cancel()
    model.go.set()
    assert (await second)[0] == 6


async def test_failure_reaches_its_caller_alone(model: SlowModel, encoder: Encoder) -> None:
    broken, sound = await start(encoder, "broken", "sound")
    model.go.set()
    with pytest.raises(ModelUnavailableError):
        await broken
    assert (await sound)[0] == 5


async def test_long_text_is_cut_before_it_waits(model: SlowModel, encoder: Encoder) -> None:
    model.go.set()
    await encoder.encode_query("x" * 1_000_000)
    assert [len(text) for text in model.seen] == [MAX_TEXT]
