"""Where a local run keeps things."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DEFAULT_DATA_DIR = ROOT / ".keepsake"
