"""The FastStream subscriber that polls `chat.events`, set so that nothing but the stager ever acknowledges a record.

Where FastStream 0.7 stands in the way of at-least-once, and what is done instead:
- Its acknowledgements commit whatever the consumer's position is: `AckPolicy.MANUAL`, and the stager commits the offsets it staged.
- Under MANUAL a handler that raises is forgotten and the next commit passes its records: the handler here never raises.
- Its parser raises on a header that is not UTF-8 and the poll is skipped: an own parser looks at nothing.
- It calls the handler only with records, so an idle loop cannot be told from a dead one: the consumer's polls themselves are counted.
- After a poll that failed in the middle of a fetch (a broken batch, a header whose name is not UTF-8) aiokafka 0.14 goes on behind the
  records it had already taken, and FastStream polls again: the stager ends instead, and a new one starts from the committed offsets.
- A handler that waits stops the polling, and after `max.poll.interval` the partitions go: the handler returns, and pauses the consumer.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import ConsumerStoppedError, CorruptRecordException, KafkaError, UnsupportedCodecError
from faststream import AckPolicy
from faststream.kafka import KafkaBroker
from faststream.kafka.message import KafkaMessage
from faststream.message import StreamMessage
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256, SASLScram512

from services.extraction.stager.reading import Source
from services.extraction.stager.settings import StagerSettings

log = structlog.get_logger()

Handler = Callable[[tuple[Source, ...]], Awaitable[None]]

# FastStream sleeps as long again after an empty poll, so this is half of the longest wait of a chat.
POLL_MS = 100
SESSION_TIMEOUT_MS = 30_000


def make_broker(settings: StagerSettings, handler: Handler, listener: ConsumerRebalanceListener) -> KafkaBroker:
    broker = KafkaBroker(
        list(settings.kafka_bootstrap_servers),
        client_id="keepsake-stager",
        security=_security(settings),
        consumer_only=True,
        allow_auto_create_topics=False,
        # A topic or partition that is made later is found within this.
        metadata_max_age_ms=30_000,
        graceful_timeout=2.0,
        # Its log lines carry exceptions with their texts.
        logger=None,
        # No injection by annotation: the handler takes the records as they are.
        apply_types=False,
    )
    subscriber = broker.subscriber(
        settings.topic_chat_events,
        batch=True,
        max_records=settings.stage_batch,
        batch_timeout_ms=POLL_MS,
        group_id=settings.group_id,
        group_instance_id=settings.instance_id,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.MANUAL,
        max_poll_interval_ms=settings.max_poll_interval_ms,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=SESSION_TIMEOUT_MS // 10,
        listener=listener,
        no_reply=True,
        parser=_parse,
        decoder=_decode,
    )
    subscriber(handler)
    return broker


def consumer_of(broker: KafkaBroker) -> AIOKafkaConsumer | None:
    consumer: AIOKafkaConsumer | None = broker.subscribers[0].consumer  # type: ignore[attr-defined]
    return consumer


def watch_polls(consumer: AIOKafkaConsumer, polled: Callable[[], None], broken: Callable[[Exception], None]) -> None:
    """Calls `polled` after every poll that did not fail, also an empty one, and `broken` after one that may have lost records."""
    getmany = consumer.getmany

    async def watched(*partitions: Any, **options: Any) -> Any:
        try:
            records = await getmany(*partitions, **options)
        except ConsumerStoppedError:
            raise
        except Exception as error:
            log.warning("poll_failed", error=type(error).__name__)
            if not isinstance(error, KafkaError) or isinstance(error, CorruptRecordException | UnsupportedCodecError):
                broken(error)
            raise
        polled()
        return records

    consumer.getmany = watched


async def _parse(records: tuple[Source, ...]) -> StreamMessage[tuple[Source, ...]]:
    return KafkaMessage(body=b"", raw_message=records, consumer=None)  # type: ignore[arg-type]


async def _decode(message: StreamMessage[tuple[Source, ...]]) -> tuple[Source, ...]:
    return message.raw_message


def _security(settings: StagerSettings) -> BaseSecurity | None:
    options = settings.kafka_client()
    context = options.get("ssl_context")
    if not settings.kafka_security_protocol.startswith("SASL"):
        return BaseSecurity(ssl_context=context, use_ssl=True) if context is not None else None
    kinds = {"PLAIN": SASLPlaintext, "SCRAM-SHA-256": SASLScram256, "SCRAM-SHA-512": SASLScram512}
    return kinds[settings.kafka_sasl_mechanism](
        username=options["sasl_plain_username"] or "",
        password=options["sasl_plain_password"] or "",
        ssl_context=context,
        use_ssl=context is not None,
    )
