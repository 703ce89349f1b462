"""A short run of `make chaos`, and that its checker can say no."""

import asyncio
import logging
import os

import pytest

from deploy.local import kafka
from deploy.local.paths import DEFAULT_DATA_DIR
from tests.chaos.chaos import Settings, run

SEED = int(os.environ.get("SEED", "1"))


@pytest.mark.apache_kafka
@pytest.mark.timeout(420)
@pytest.mark.skipif(kafka.missing(DEFAULT_DATA_DIR) is not None, reason="needs Java and `make kafka`")
def test_chaos_loses_nothing_and_doubles_nothing() -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    report = asyncio.run(run(Settings(seed=SEED, minutes=1.5, kills=32, chats=900)))
    assert report.kills.total() >= 30
    assert report.violations == [], report.text(0)
