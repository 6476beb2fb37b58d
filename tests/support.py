"""What tests share: where the shared data lies, and the marker that skips without it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
DATA = SHARED / "data"

needs_shared = pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data, which is not here")
