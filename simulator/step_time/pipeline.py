"""Step times of a pipeline: one model a stage, and what it takes to hand activations from stage to stage."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.step_time.base import UNBOUNDED_STEPS, Batch, Segment, StepTimeModel

AS_PER_PS = 10**6


@dataclass(frozen=True)
class StageTransfer:
    """latency + attoseconds a token, rounded up to picoseconds; the same between any two stages."""

    latency_ps: int = 0
    per_token_as: int = 0

    def ps(self, tokens: int) -> int:
        return self.latency_ps - (-self.per_token_as * tokens // AS_PER_PS)


class PipelinedStepTime:
    """A StepTimeModel of the whole pipeline, and of its ``stages`` one by one.

    A batch leaves the last stage, at the earliest, after the sum of its stages and transfers: that is its ``segment``.
    How long it waits for others on the way is for the simulated clock to say (``simulator.pipeline``).
    """

    def __init__(self, stages: tuple[StepTimeModel, ...], transfer: StageTransfer | None = None) -> None:
        self.stages = stages
        self.transfer = transfer or StageTransfer()
        self._windows = tuple(sorted({window for stage in stages for window in stage.windows}))
        # Where each stage finds its windows among those of all.
        self._places = [[self._windows.index(window) for window in stage.windows] for stage in stages]

    @property
    def windows(self) -> tuple[int, ...]:
        """Distinct sliding windows of all stages, rising."""
        return self._windows

    def stages_ps(self, batch: Batch) -> list[int]:
        """How long each stage works on the batch."""
        return [segment.duration_ps for segment in self._segments(batch)]

    def transfer_ps(self, batch: Batch) -> int:
        """From the end of one stage to the earliest start of the next."""
        return self.transfer.ps(batch.tokens)

    def segment(self, batch: Batch) -> Segment:
        """Latency of a batch that finds every stage free."""
        segments = self._segments(batch)
        duration = sum(segment.duration_ps for segment in segments)
        growth = sum(segment.growth_ps for segment in segments)
        steps = min((segment.steps for segment in segments), default=UNBOUNDED_STEPS)
        return Segment(duration + (len(segments) - 1) * self.transfer_ps(batch), growth, steps)

    def _segments(self, batch: Batch) -> list[Segment]:
        if not self._windows:
            return [stage.segment(batch) for stage in self.stages]
        segments = []
        for stage, places in zip(self.stages, self._places, strict=True):
            windowed = tuple(batch.windowed[place] for place in places)
            segments.append(stage.segment(replace(batch, windowed=windowed)))
        return segments
