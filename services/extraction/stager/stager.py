"""The stager: Kafka → staging. An offset is committed only after its records are staged or on the dead-letter topic."""

import asyncio
import contextlib
from collections import Counter, deque
from typing import get_args

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from faststream.kafka import KafkaBroker

from services.extraction.stager.consumer import consumer_of, make_broker, watch_polls
from services.extraction.stager.lag import Lag
from services.extraction.stager.ratio import DeadRatio
from services.extraction.stager.reading import Poll, Source, dead_letter, read_poll
from services.extraction.stager.settings import StagerSettings
from services.extraction.stager.staging import CALL_TIMEOUT_S, MAX_PAUSE_S, Staging
from shared.backoff import Backoff
from shared.events import BadRecord, DeadReason
from shared.kafka import Producer, PublishFailed, Record
from shared.loops import Loops
from shared.rpc.client import MemoryStoreClient
from shared.telemetry import metrics
from shared.telemetry.tracing import link_to, span

log = structlog.get_logger()

STAGING, POLLING = "stager", "stager_polls"
STARTING, PAUSED, NO_TOPICS = "starting", "dead_letter_ratio", "topics_missing"
IDLE_S = 1.0
# How long the handler waits for room before the consumer is paused; pausing throws fetched records away, so not at every poll.
PATIENCE_S = 5.0
COMMIT_TIMEOUT_S = 10.0
PUBLISH_TIMEOUT_S = 10.0
END_S = 10.0
LEAVE_S = 5.0
# A key longer than three ids percent-encoded is none of ours, and must not make the dead letter too large.
MAX_KEY_BYTES = 8192
MAX_LINKS = 32


class Stager(ConsumerRebalanceListener):  # type: ignore[misc]
    """Two tasks share the work: FastStream's polls and reads, ours stages one poll while the next is read.

    `not_ready` says in a word why the stager does not stage, or is None.
    """

    def __init__(self, settings: StagerSettings, store: MemoryStoreClient, loops: Loops, stop: asyncio.Event) -> None:
        self.not_ready: str | None = STARTING
        self._settings = settings
        self._loops = loops
        self._stop = stop
        self._stand_ins = frozenset(name.casefold() for name in settings.anonymous_users)
        self._staging = Staging(store, lambda: loops.beat(STAGING))
        self._producer = Producer(settings, name="keepsake-stager")
        self._ratio = DeadRatio(settings.dead_letter_max_ratio)
        self._consumer: AIOKafkaConsumer | None = None
        self._waiting: deque[Poll] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._holding = False
        # Counts assignments: what was read under an earlier one may be another's by now and is not committed.
        self._generation = 0
        self._staged: dict[TopicPartition, int] = {}
        self._crash: Exception | None = None
        self._lag = Lag(settings, loops, lambda: self._consumer)
        for reason in get_args(DeadReason):
            # From 0 on, so that the first one of its kind is an increase.
            metrics.DEAD_LETTERS.labels(reason)

    async def run(self) -> None:
        """Stages until `stop` is set; then ends the poll in hand. Raises what should never happen, so that the process ends."""
        self._loops.register(STAGING, bound_s=CALL_TIMEOUT_S + MAX_PAUSE_S)
        self._loops.register(POLLING, bound_s=self._settings.max_poll_interval_ms / 1000)
        self._producer.start()
        broker = await self._join()
        work = asyncio.create_task(self._work())
        lag = asyncio.create_task(self._lag.run())
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            self._stop.set()
            self._changed.set()
            await asyncio.wait({work}, timeout=END_S)
        finally:
            for task in (stop, lag, work):
                task.cancel()
            await asyncio.gather(work, stop, lag, return_exceptions=True)
            if broker is not None:
                await _leave(broker)
            await self._producer.stop()
            self._loops.unregister(STAGING)
            self._loops.unregister(POLLING)
        error = self._crash if work.cancelled() else self._crash or work.exception()
        if error is not None:
            raise error

    # Joining and leaving

    async def _join(self) -> KafkaBroker | None:
        """A broker whose subscriber runs; None where `stop` came first. Waits for Kafka as long as it takes."""
        pauses = Backoff(0.2, MAX_PAUSE_S)
        told = False
        while not self._stop.is_set():
            broker = make_broker(self._settings, self._take, self)
            start = asyncio.create_task(broker.start())
            while not start.done() and not self._stop.is_set():
                await asyncio.wait({start}, timeout=IDLE_S)
                self._beat()
                await self._look_for_topics()
            if not start.done():
                start.cancel()
            [error] = await asyncio.gather(start, return_exceptions=True)
            if error is None:
                self._consumer = consumer_of(broker)
                watch_polls(self._consumer, lambda: self._loops.beat(POLLING), self._fail)
                self.not_ready = None
                log.info("stager_joined", partitions=len(self._assigned()))
                return broker
            await _leave(broker)
            if not isinstance(error, KafkaError | OSError | asyncio.CancelledError):
                raise error
            if not told:
                log.warning("kafka_away", client="keepsake-stager", error=type(error).__name__)
                told = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pauses.next_pause()):
                    await self._stop.wait()
            self._beat()
        return None

    async def _look_for_topics(self) -> None:
        """A consumer waits for a topic that is not there without a word."""
        missing = await self._producer.missing(self._settings.topic_chat_events, self._settings.topic_dead_letter)
        if missing and self.not_ready == STARTING:
            self.not_ready = NO_TOPICS
            log.warning(NO_TOPICS, topics=missing, fix="python -m deploy topics")
        elif missing == [] and self.not_ready == NO_TOPICS:
            self.not_ready = STARTING
            log.info("topics_found")

    def _beat(self) -> None:
        self._loops.beat(STAGING)
        self._loops.beat(POLLING)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._generation += 1
        self._staged.clear()
        self._lag.revoked(revoked)
        metrics.STAGER_PARTITIONS.set(0)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        metrics.STAGER_PARTITIONS.set(len(assigned))
        if self._holding and self._consumer is not None:
            self._consumer.pause(*assigned)

    def _assigned(self) -> set[TopicPartition]:
        return set(self._consumer.assignment()) if self._consumer is not None else set()

    # Polls come in

    async def _take(self, records: tuple[Source, ...]) -> None:
        """FastStream's handler. It never raises: FastStream would go on, and the next commit would pass these records."""
        try:
            await self._accept(records)
        except Exception as error:  # noqa: BLE001 (handed to `run`, which ends the process with it)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._crash = self._crash or error
        self._stop.set()

    async def _accept(self, records: tuple[Source, ...]) -> None:
        if self._stop.is_set() or self.not_ready == PAUSED:
            return  # Neither staged nor committed: they come again.
        poll = read_poll(records, self._generation, self._stand_ins)
        if self._waiting:
            self._room.clear()
            try:
                async with asyncio.timeout(min(PATIENCE_S, self._settings.max_poll_interval_ms / 4000)):
                    await self._room.wait()
            except TimeoutError:
                self._hold()
        self._waiting.append(poll)
        self._changed.set()

    def _hold(self) -> None:
        """Lets the polling go on without records: the group keeps us while memory-store is away."""
        self._holding = True
        if self._consumer is not None:
            self._consumer.pause(*self._assigned())

    def _let_go(self) -> None:
        if self._holding and self._consumer is not None:
            self._holding = False
            self._consumer.resume(*self._consumer.paused())

    # Polls are staged, one after the other

    async def _work(self) -> None:
        while not self._stop.is_set():
            self._loops.beat(STAGING)
            if not self._waiting or self.not_ready == PAUSED:
                await self._idle()
                continue
            poll = self._waiting.popleft()
            if not self._waiting:
                self._room.set()
                self._let_go()
            await self._finish(poll)

    async def _idle(self) -> None:
        if self._staged:
            await self._commit()
        self._changed.clear()
        try:
            async with asyncio.timeout(IDLE_S):
                await self._changed.wait()
        except TimeoutError:
            return  # to show that the loop moves

    async def _finish(self, poll: Poll) -> None:
        outcomes, bad = await self._stage(poll)
        dead = {at for at, _ in bad}
        if self._ratio.crossed_by(at in dead for at in range(len(poll.sources))):
            self._pause_for_good()
            return
        await self._bury(poll, bad)
        for outcome, count in outcomes.items():
            metrics.STAGER_RECORDS.labels(outcome).inc(count)
        metrics.UNKNOWN_FIELDS.inc(poll.unknown_fields)
        if poll.generation == self._generation:
            self._staged |= poll.ends
            await self._commit()
        else:
            metrics.STAGER_COMMITS_REFUSED.inc()

    async def _stage(self, poll: Poll) -> tuple[Counter[str], list[tuple[int, BadRecord]]]:
        """What became of the records, by outcome, and which are dead."""
        good, bad = poll.good, list(poll.bad)
        outcomes = Counter(dropped_anonymous=len(poll.sources) - len(good) - len(bad))
        traces = sorted({record.traceparent for _, record in good if record.traceparent})[:MAX_LINKS]
        with span("stage", links=[link for trace in traces for link in link_to(trace)]):
            verdicts = await self._staging.stage(
                [record for _, record in good], [len(poll.sources[at].value or b"") for at, _ in good]
            )
        for (at, _), verdict in zip(good, verdicts, strict=True):
            if verdict.status == "rejected":
                # memory-store answers with a dead letter's reason.
                bad.append((at, BadRecord(verdict.reason or "invalid", "refused by memory-store")))  # type: ignore[arg-type]
            else:
                outcomes["_".join(filter(None, (verdict.status, verdict.reason)))] += 1
        outcomes["dead"] = len(bad)
        return outcomes, sorted(bad, key=lambda each: each[0])

    def _pause_for_good(self) -> None:
        """A start with a higher ratio goes on from the same records."""
        self.not_ready = PAUSED
        self._waiting.clear()
        self._hold()
        log.error("stager_paused", reason=PAUSED, limit=self._settings.dead_letter_max_ratio)

    async def _bury(self, poll: Poll, bad: list[tuple[int, BadRecord]]) -> None:
        """Returns once the dead-letter topic has them, however long it takes."""
        letters = []
        for at, why in bad:
            source = poll.sources[at]
            key = source.key if source.key is not None and len(source.key) <= MAX_KEY_BYTES else None
            letters.append(Record(key, dead_letter(source, why).model_dump_json().encode()))
        pauses = Backoff(0.2, MAX_PAUSE_S)
        # A thousand letters of 64 KiB are more than the producer lets wait at once.
        while letters:
            self._loops.beat(STAGING)
            try:
                await self._producer.publish(self._settings.topic_dead_letter, letters[:100], timeout=PUBLISH_TIMEOUT_S)
            except PublishFailed:
                log.warning("dead_letters_wait", records=len(letters))
                await asyncio.sleep(pauses.next_pause())
            else:
                del letters[:100]
        for _, why in bad:
            metrics.DEAD_LETTERS.labels(why.reason).inc()

    async def _commit(self) -> None:
        """Offsets only ever grow, so one that could not be committed goes with the next."""
        consumer = self._consumer
        if consumer is None:
            return
        ends = dict(self._staged)
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT_S):
                await consumer.commit(ends)
        except (CommitFailedError, IllegalStateError):
            # The group has moved on. Staging is idempotent: whoever reads these records again changes nothing.
            metrics.STAGER_COMMITS_REFUSED.inc()
            self._staged.clear()
        except (KafkaError, TimeoutError) as error:
            log.warning("commit_failed", error=type(error).__name__)
        else:
            self._staged = {place: end for place, end in self._staged.items() if ends.get(place) != end}
            metrics.STAGER_LAST_COMMIT.set_to_current_time()
            self._lag.committed(ends)


async def _leave(broker: KafkaBroker) -> None:
    """In a rebalance aiokafka would first wait for whoever else is to join: of one that is down, until its session is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            await broker.stop()
