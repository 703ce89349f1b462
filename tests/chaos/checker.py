"""What was published against what the store holds, read as its superuser. Each broken promise is named."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from uuid import UUID

import asyncpg

from shared.events import MemoryChange
from tests.chaos.history import History
from tests.chaos.model import RightModel, statements
from tests.chaos.plan import Send
from tests.chaos.truth import ChatKey, Position, Published
from tests.chaos.world import MAX_ATTEMPTS, WINDOW

MAX_WORKSPACE, MAX_GLOBAL, MAX_WAITING = 20, 5, 10
_LIVE = ("active", "pending")
# Failures that only a broken program makes.
_NEVER = ("internal", "refused_by_store")

Row = Mapping[str, Any]
FactKey = tuple[str, str, Any]


@dataclass
class Store:
    """The tables, as they are once everything has come to rest."""

    chats: dict[ChatKey, Row]
    runs: dict[Any, Row]
    batches: list[Row]
    facts: dict[FactKey, Row]
    versions: dict[FactKey, list[Row]]
    evidence: dict[FactKey, list[Row]]
    audit: dict[tuple[str, str], list[Row]]
    outbox: int


async def read_store(url: str) -> Store:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):

            async def table(name: str, order: str = "tenant, usr") -> list[Row]:
                return [dict(row) for row in await connection.fetch(f"SELECT * FROM {name} ORDER BY {order}")]

            def by_fact(rows: Iterable[Row]) -> dict[FactKey, list[Row]]:
                grouped = defaultdict(list)
                for row in rows:
                    grouped[row["tenant"], row["usr"], row["fact_id"]].append(row)
                return grouped

            audit: dict[tuple[str, str], list[Row]] = defaultdict(list)
            for row in await table("audit", "id"):
                if row["fact_id"] is not None:
                    audit[row["tenant"], row["usr"]].append(row)
            return Store(
                chats={(row["tenant"], row["usr"], row["event_id"]): row for row in await table("chat")},
                runs={row["id"]: row for row in await table("run")},
                batches=await table("batch"),
                facts={(row["tenant"], row["usr"], row["id"]): row for row in await table("fact")},
                versions=by_fact(await table("fact_version", "version")),
                evidence=by_fact(await table("evidence")),
                audit=audit,
                outbox=await connection.fetchval("SELECT count(*) FROM outbox"),
            )
    finally:
        await connection.close()


@dataclass
class Checker:
    """`lost` and `doubled` count chats and facts; what else is wrong stands in the history."""

    store: Store
    published: Published
    history: History
    lost: int = 0
    doubled: int = 0
    ends: Counter[str] = field(default_factory=Counter)

    def check_all(self, model: RightModel, sends: Iterable[Send], accepted: set[int]) -> None:
        self.check_acceptance(sends, accepted)
        self.check_chats()
        self.check_runs(model.maimed)
        self.check_batches()
        self.check_facts()
        self.check_caps()

    def check_acceptance(self, sends: Iterable[Send], accepted: set[int]) -> None:
        """What was acknowledged stands on the topic."""
        for send in sends:
            if send.number not in accepted:
                continue
            for record in send.records:
                key = (record.group[0], record.group[1], record.event_id)
                if record.kind in ("chat", "poison", "fork") and key not in self.published.chats:
                    self._lose("accepted and not on the topic", key)

    def check_chats(self) -> None:
        """Each chat is in exactly one applied run, dropped, or dead with a reason."""
        readers: dict[ChatKey, list[Any]] = defaultdict(list)
        for run in self.store.runs.values():
            if run["state"] == "applied":
                for event_id in run["event_ids"]:
                    readers[run["tenant"], run["usr"], event_id].append(run["id"])
        for key, copies in self.published.chats.items():
            row = self.store.chats.get(key)
            if len(readers[key]) > 1:
                self.doubled += 1
                self.history.violation("read twice", chat=key, runs=readers[key])
            if row is None:
                self._check_absent(key)
            else:
                self.ends[row["state"]] += 1
                self._check_chat(key, row, readers[key], [position for position, _ in copies])
        for key, row in self.store.chats.items():
            if key not in self.published.chats and row["state"] != "deleted":
                self.history.violation("staged and never published", chat=key)

    def _check_absent(self, key: ChatKey) -> None:
        if all(self._is_reset(key, position) for position, _ in self.published.chats[key]):
            self.ends["dropped reset"] += 1
        elif self._is_repeat(key):
            self.ends["dropped repeat"] += 1
        else:
            self._lose("not staged", key)

    def _check_chat(self, key: ChatKey, row: Row, readers: list[Any], positions: list[Position]) -> None:
        state = row["state"]
        if (key in self.published.deleted) != (state == "deleted"):
            self.history.violation("deleted or not", chat=key, state=state)
        elif state == "pending":
            self._lose("never read", key)
        elif state == "read":
            if readers != [row["run_id"]]:
                self._lose("read by no applied run", key)
        elif state == "dead":
            self._check_dead(key, row)
        elif state == "excluded" and (row["reason"] != "reset" or not any(self._is_reset(key, at) for at in positions)):
            self._lose("excluded without a reset", key)

    def _check_dead(self, key: ChatKey, row: Row) -> None:
        """Only the model may condemn a chat: kills never do."""
        run = self.store.runs.get(row["run_id"])
        poison = "POISON" in self.published.chats[key][0][1].prompt
        self.ends["dead poison" if poison else "dead healthy"] += 1
        if row["reason"] in (None, "worker_lost") or run is None or run["outcome"] != "dead":
            self._lose(f"dead by {row['reason']}", key)

    def _check_attempts(self) -> None:
        """A batch gives up a window once for each MAX_ATTEMPTS of its tries that failed, at the most."""
        failed: Counter[Any] = Counter()
        given_up: Counter[Any] = Counter()
        for run in self.store.runs.values():
            batch = (run["tenant"], run["usr"], run["workspace"])
            failed[batch] += run["state"] == "failed"
            given_up[batch] += run["outcome"] == "dead"
        for batch, count in given_up.items():
            if failed[batch] < MAX_ATTEMPTS * count:
                self.history.violation("given up too soon", batch=batch, failed=failed[batch], given_up=count)

    def _is_reset(self, key: ChatKey, position: Position) -> bool:
        chat = self.published.chats[key][0][1]
        return any(
            (reset.tenant, reset.user, reset.workspace) == (chat.tenant, chat.user, chat.workspace)
            and reset.thread in (None, chat.thread)
            and position < at
            for at, reset in self.published.resets
        )

    def _is_repeat(self, key: ChatKey) -> bool:
        """Another chat of this person that is staged says the same at the same time."""
        chat = self.published.chats[key][0][1]
        if chat.occurred_at is None:
            return False
        said = (chat.workspace, chat.prompt, chat.response, chat.occurred_at)
        return any(
            other != key and other[:2] == key[:2] and other in self.store.chats
            and any((copy.workspace, copy.prompt, copy.response, copy.occurred_at) == said for _, copy in copies)
            for other, copies in self.published.chats.items()
        )  # fmt: skip

    def check_runs(self, maimed: set[str]) -> None:
        """Runs are over, read at most a window, and what a right model said of their chats has become evidence."""
        for run in self.store.runs.values():
            if run["state"] == "running" or run["ended_at"] is None:
                self.history.violation("run never ended", run=run["id"], state=run["state"])
            if not 1 <= len(run["event_ids"]) <= WINDOW:
                self.history.violation("window", run=run["id"], chats=len(run["event_ids"]))
            if run["reason"] in _NEVER:
                self.history.violation("run broken", run=run["id"], reason=run["reason"])
            if run["state"] == "applied":
                self._check_learned(run, maimed)
        self._check_attempts()

    def _check_learned(self, run: Row, maimed: set[str]) -> None:
        proposed = json.loads(run["candidates"])
        quotes = {evidence["quote"] for record in proposed for evidence in record["candidate"]["evidence"]}
        for event_id in run["event_ids"]:
            row = self.store.chats[run["tenant"], run["usr"], event_id]
            if row["state"] == "read" and row["run_id"] == run["id"] and event_id not in maimed:
                for said in statements(row["prompt"]):
                    if said not in quotes:
                        self.history.violation("statement not learned", run=run["id"], event=event_id)
        kept = [record["candidate"] for record in proposed if record.get("dropped") is None]
        results = {result["candidate"]: result for result in json.loads(run["results"])}
        for number, candidate in enumerate(kept):
            result = results.get(number)
            if result is None:
                self.history.violation("candidate without a result", run=run["id"], candidate=number)
            elif result.get("fact_id") is not None:
                self._check_result(run, candidate, (run["tenant"], run["usr"], UUID(result["fact_id"])))

    def _check_result(self, run: Row, candidate: Row, key: FactKey) -> None:
        if key not in self.store.facts:
            self.history.violation("fact of a run is not there", run=run["id"], fact=key[2])
            return
        known = {(row["event_id"], row["quote"]) for row in self.store.evidence[key]}
        for evidence in candidate["evidence"]:
            chat = (run["tenant"], run["usr"], evidence["event_id"])
            if self.store.chats[chat]["state"] == "read" and (evidence["event_id"], evidence["quote"]) not in known:
                self.history.violation("evidence lost", run=run["id"], fact=key[2], event=evidence["event_id"])

    def check_batches(self) -> None:
        pending = Counter(
            (row["tenant"], row["usr"], row["workspace"])
            for row in self.store.chats.values()
            if row["state"] == "pending"
        )
        for batch in self.store.batches:
            key = (batch["tenant"], batch["usr"], batch["workspace"])
            if batch["run_id"] is not None:
                self.history.violation("lease left", batch=key, run=batch["run_id"])
            if batch["pending"] != pending[key]:
                self.history.violation("pending miscounted", batch=key, counted=batch["pending"], there=pending[key])
            if not pending[key] and (batch["claimable_at"] or batch["attempts"] or batch["failed_at"]):
                self.history.violation("empty batch is not at rest", batch=key)

    def check_facts(self) -> None:
        same: Counter[Any] = Counter()
        for key, fact in self.store.facts.items():
            if fact["state"] in _LIVE:
                same[fact["tenant"], fact["usr"], fact["workspace"], _normal(fact["content"])] += 1
            self._check_versions(key, fact)
            self._check_evidence(key, fact)
        for what, count in same.items():
            if count > 1:
                self.doubled += 1
                self.history.violation("fact twice", fact=what)

    def _check_versions(self, key: FactKey, fact: Row) -> None:
        versions = self.store.versions[key]
        numbers = list(range(1, fact["version"] + 1))
        if [row["version"] for row in versions] != numbers:
            self.history.violation("versions have a gap", fact=key)
            return
        if any(row["known_to"] != after["known_from"] for row, after in pairwise(versions)):
            self.history.violation("beliefs overlap", fact=key)
        last = versions[-1]
        if last["known_to"] is not None or any(
            last[name] != fact[name] for name in ("content", "state", "workspace", "valid_to")
        ):
            self.history.violation("last version is not the fact", fact=key)
        audited = [row["to_version"] for row in self.store.audit[key[:2]] if row["fact_id"] == key[2]]
        if audited != numbers:
            self.history.violation("versions and audit differ", fact=key, audited=audited)

    def _check_evidence(self, key: FactKey, fact: Row) -> None:
        rows = self.store.evidence[key]
        if fact["state"] in _LIVE and not rows:
            self.history.violation("fact without evidence", fact=key)
        seen = Counter((row["event_id"], row["quote"]) for row in rows)
        if any(count > 1 for count in seen.values()):
            self.doubled += 1
            self.history.violation("evidence twice", fact=key)
        for row in rows:
            chat = self.store.chats.get((row["tenant"], row["usr"], row["event_id"]))
            copies = self.published.chats.get((row["tenant"], row["usr"], row["event_id"]), [])
            if chat is None or chat["state"] != "read":
                self.history.violation("evidence of an unread chat", fact=key, event=row["event_id"])
            elif not copies or row["quote"] not in copies[0][1].prompt:
                self.history.violation("quote is not in the chat", fact=key, event=row["event_id"])
            elif row["run_id"] != chat["run_id"]:
                self.history.violation("evidence of another run", fact=key, event=row["event_id"])

    def check_caps(self) -> None:
        active: Counter[Any] = Counter()
        waiting: Counter[Any] = Counter()
        for fact in self.store.facts.values():
            scope = (fact["tenant"], fact["usr"], fact["workspace"])
            active[scope] += fact["state"] == "active"
            waiting[scope] += fact["pending_reason"] == "limit"
        for scope, count in active.items():
            if count > (MAX_GLOBAL if scope[2] is None else MAX_WORKSPACE) or waiting[scope] > MAX_WAITING:
                self.history.violation("cap", scope=scope, active=count, waiting=waiting[scope])

    def check_changes(self, changes: Mapping[tuple[str, str], list[MemoryChange]]) -> None:
        """memory.changes has each change at least once; the first time of each in the order in which they happened."""
        if self.store.outbox:
            self.history.violation("outbox not drained", rows=self.store.outbox)
        for person in self.store.audit.keys() | changes.keys():
            happened = [(row["action"], str(row["fact_id"]), row["to_version"]) for row in self.store.audit[person]]
            told = list(
                dict.fromkeys((change.type, change.fact_id, change.version) for change in changes.get(person, []))
            )
            if told != happened:
                kind = (
                    "changes out of order"
                    if sorted(map(str, told)) == sorted(map(str, happened))
                    else "changes lost or invented"
                )
                self.history.violation(kind, person=person, happened=len(happened), told=len(told))

    def check_dead_letters(self, letters: set[tuple[int, int]]) -> None:
        for place in letters ^ self.published.bad:
            self.history.violation(
                "dead letter without a bad record" if place in letters else "bad record without a dead letter",
                place=place,
            )

    def _lose(self, kind: str, key: ChatKey) -> None:
        self.lost += 1
        self.history.violation(kind, chat=key)


def _normal(content: str) -> str:
    return re.sub(r"\s+", " ", content).casefold().rstrip(".!?")
