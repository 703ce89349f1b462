from pathlib import Path

from pydantic import Field

from shared.ids import STAND_INS
from shared.settings import CommaSeparated, ServiceSettings, StoreClientSettings


class InjectionSettings(ServiceSettings, StoreClientSettings):
    port: int = Field(8003, ge=0, le=65535, description="Port to listen on.")
    ranker_model: Path = Field(
        Path(".keepsake/models/use-multilingual-v3"),
        description="Folder of the ranker's model (python -m deploy models fetch). Missing or broken: newest facts first.",
    )
    assemble_deadline_ms: int = Field(
        300, ge=10, le=60_000, description="Time an assemble may take; then the prompt comes back without what is late."
    )
    rank_deadline_ms: int = Field(
        150, ge=1, le=60_000, description="Time the ranking of facts may take; then the newest serve."
    )
    min_relevance: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="Relevance the best fact must reach (cosine). Unset: the model's own floor for English messages, none for others.",
    )
    history_weight: float = Field(
        0.6, ge=0, le=5, description="Weight of the best-fitting of the last three user turns beside the message."
    )
    sticky_margin: float = Field(
        0.03,
        ge=0,
        le=3,
        description="How much better another fact must score to replace one that the thread already has.",
    )
    anonymous_users: CommaSeparated = Field(
        STAND_INS, description="User ids that applications send when nobody is signed in, in any case, comma-separated."
    )
