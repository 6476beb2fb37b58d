"""The door between the engine and a model of step times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

UNBOUNDED_STEPS = 1 << 62


@dataclass(slots=True)
class Batch:
    """What one forward step computes. The engine reuses one object: a model must not keep it.

    A token's *context* is the number of tokens in the KV cache that it attends to, itself included.

    Attributes:
        tokens: tokens computed in the step (rows of the linear layers).
        requests: requests scheduled in the step.
        sampled: requests that get a token from this step (rows of the LM head).
        context: sum over scheduled requests of their tokens in the KV cache after the step.
        decodes: requests that compute exactly one token, their newest (counted in ``requests`` too).
        decode_context: the part of ``context`` that belongs to decodes.
        prefills: (chunk_tokens, context_after_tokens) of every other scheduled request.
        windowed: for each window W of ``StepTimeModel.windows``, (sum over decodes of min(context, W),
            number of decodes whose context is still below W, so that the sum grows by that much a step).
    """

    tokens: int = 0
    requests: int = 0
    sampled: int = 0
    context: int = 0
    decodes: int = 0
    decode_context: int = 0
    prefills: list[tuple[int, int]] = field(default_factory=list)
    windowed: tuple[tuple[int, int], ...] = ()


class Segment(NamedTuple):
    """Durations of a run of identical-shape steps: step i (from 0) lasts ``duration_ps + i * growth_ps``.

    In step i every decode's context has grown by i, all else being equal. Sure for ``0 <= i < steps``;
    the engine asks again beyond. Rounding to integers happens once, per coefficient and not per step, so that
    asking in the middle of a segment gives exactly its continuation (additivity).
    """

    duration_ps: int
    growth_ps: int
    steps: int


class StepTimeModel(Protocol):
    """A model of how long a step takes. Stateless: the same batch gives the same segment."""

    @property
    def windows(self) -> tuple[int, ...]:
        """Sliding windows (tokens) whose decode sums the model wants in ``Batch.windowed``."""
        ...

    def segment(self, batch: Batch) -> Segment:
        """Durations from this step on, as long as only the decodes' contexts grow.

        Where ``batch.prefills`` is not empty the engine uses the first step only.
        """
        ...
