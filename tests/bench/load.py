"""The server and the load of the speed bench, the same for us and for the peer."""

from __future__ import annotations

PROMPT_TOKENS = 200
NUM_BLOCKS = 28_000
BLOCK_SIZE = 16
MAX_NUM_SEQS = 256
TOKEN_BUDGET = 8192
# Llama-3.1-8B on one H100 SXM
STEP_TIME_UNITS = {"base_ms": 6.0, "per_token_us": 50.0, "per_context_token_ns": 26.0}
