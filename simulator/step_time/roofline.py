"""Step time from first principles: each part of a step takes the longer of its bytes and its FLOPs.

One step of a replica, or of one of its pipeline stages, on each of its tensor-parallel ranks (all do the same at the
same time)::

    step = overhead + layers · layer_overhead + requests · (per_request + recurrent state)
         + max(dense weight bytes / bandwidth, 2 · parameters · tokens / FLOP/s)
         + the same for the experts that ``tokens`` tokens are expected to hit
         + the same for the LM head and the rows that are sampled
         + activations read and written + 2 all-reduces a layer (+ one gather of logits)
         + attention: Σ context of decodes · max(KV bytes / bandwidth, FLOPs / FLOP/s)
         + attention of prefill chunks: max(causal FLOPs, KV read), each (+ K and V projected up from latents: MLA)

Bandwidth and FLOP/s are the data sheet's times the calibration's shares, all at most 1: no setting goes below
weights read once at full bandwidth. Every coefficient is rounded once to integer picoseconds (weights upwards, to
stay on the floor), so that a run of decode steps is exactly linear in the step's number and can be cut anywhere.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from simulator.calibration import Calibration
from simulator.errors import InputError
from simulator.specs import GpuSpec, ModelSpec, Parallelism
from simulator.step_time.attention_cost import PS_PER_S, attention_cost, cached_sides_s, causal_pairs, prefill_key_s
from simulator.step_time.base import UNBOUNDED_STEPS, Batch, Segment
from simulator.step_time.rank_work import ACTIVATION_BYTES, RankWork, rank_work
from simulator.step_time.rates import Collective, LinearRates, Rates, collective, rates

if TYPE_CHECKING:
    from simulator.rank_memory import Stage


class Roofline:
    """A StepTimeModel. Stateless but for memory of what it has computed before.

    Invariant: ``_body`` and ``_head`` hold what ``body_ps`` and ``head_ps`` give, at most one entry per number of
    tokens (the token budget bounds them).
    """

    kind = "roofline"

    def __init__(
        self,
        model: ModelSpec,
        gpu: GpuSpec,
        parallelism: Parallelism,
        calibration: Calibration,
        *,
        kv_dtype_bytes: float = 2.0,
        compute_dtype: str | None = None,
        stage: Stage | None = None,
    ) -> None:
        """See the module. ``stage``: of a pipeline (see ``PipelinedRoofline``); None = all layers.

        The host's time of a step and of its requests is charged once, on the first stage.

        Raises:
            InputError: what is not modelled, and impossible settings.
        """
        _check(gpu, parallelism, kv_dtype_bytes, whole=stage is None)
        self.calibration = calibration
        self.work: RankWork = rank_work(
            model,
            parallelism.tensor_parallel_size,
            kv_dtype_bytes,
            stage=None if stage is None else stage.layers,
            samples=stage is None or stage.last,
            expert_parallel=parallelism.enable_expert_parallel and parallelism.tensor_parallel_size > 1,
        )
        self.rates: Rates = rates(gpu, model, self.work, calibration, kv_dtype_bytes, compute_dtype)
        self.collective: Collective = collective(gpu, calibration, parallelism.tensor_parallel_size)
        self.assumptions = _assumptions(model, gpu, self.rates, self.work)
        self._bandwidth_bytes_per_s = gpu.bandwidth_bytes_per_s
        self._attention = attention_cost(self.work.attention, self.rates)
        self._context_ps = self._attention.context_ps
        hosts = stage is None or stage.first
        overhead_s = calibration.overhead_ms * 1e-3 if hosts else 0.0
        request_s = calibration.per_request_us * 1e-6 if hosts else 0.0
        self._samples = stage is None or stage.last
        self._fixed_ps = round(PS_PER_S * (overhead_s + self.work.layers * calibration.layer_overhead_us * 1e-6))
        self._request_ps = round(PS_PER_S * request_s) + self._attention.request_ps
        self._body: dict[int, int] = {}
        self._head: dict[int, int] = {}

    @property
    def windows(self) -> tuple[int, ...]:
        """Distinct sliding windows of the model, rising."""
        return self._attention.windows

    def segment(self, batch: Batch) -> Segment:
        """Durations from this step on.

        Nothing bends the line but a window that fills. A sum of contexts cannot tell when that is, so ``steps`` has no
        bound of its own: the engine, which knows every context, ends a leap before ``growing`` changes.
        """
        body = self._body.get(batch.tokens)
        if body is None:
            body = self._body[batch.tokens] = self.body_ps(batch.tokens)
        head = self._head.get(batch.sampled)
        if head is None:
            head = self._head[batch.sampled] = self.head_ps(batch.sampled)
        duration = self._fixed_ps + body + head + self._request_ps * batch.requests
        duration += self._context_ps * batch.decode_context
        growth = self._context_ps * batch.decodes
        if self._attention.windows:
            for rate, (total, growing) in zip(self._attention.window_ps, batch.windowed, strict=True):
                duration += rate * total
                growth += rate * growing
        if not batch.prefills:
            return Segment(duration, growth, UNBOUNDED_STEPS)
        return Segment(duration + self._attention.prefill_ps(batch.prefills), growth, 1)

    def body_ps(self, tokens: int) -> int:
        """What every layer does to ``tokens`` rows, attention over the context apart."""
        work = self.work
        linear_s = sum(max(sides) for sides in self._linear_sides_s(tokens))
        row_bytes = ACTIVATION_BYTES * work.hidden_size * tokens
        reduces_s = 2 * work.layers * self.collective.all_reduce_s(row_bytes)
        return math.ceil(PS_PER_S * (linear_s + self._activations_s(tokens) + reduces_s))

    def head_ps(self, sampled: int) -> int:
        """LM head on the rows that get a token; a step that samples nothing does not run it."""
        if not sampled or not self._samples:
            return 0
        gather_s = self.collective.gather_s(ACTIVATION_BYTES * self.work.vocab_size * sampled)
        return math.ceil(PS_PER_S * (max(self._head_sides_s(sampled)) + gather_s))

    def bound_by(self, tokens: int, requests: int, decodes: int, context: int) -> Literal["compute", "bandwidth"]:
        """Which of the two makes a step's length: each part counts with the side that wins it.

        Told sums alone (see ``Batch``), it takes all requests to have the same context and all prefills the same chunk,
        and every request to get a token; sliding windows are not looked at. For reports, never for durations.
        """
        parts = [*self._linear_sides_s(tokens), self._head_sides_s(requests), (self._activations_s(tokens), 0.0)]
        each = context // max(1, requests)
        prefills = requests - decodes
        chunk = (tokens - decodes) // max(1, prefills)
        parts += self._decode_sides_s(decodes * each)
        if chunk > 0:
            parts += self._prefill_sides_s(prefills, chunk, max(chunk, each))
        bandwidth_s, compute_s = (sum(max(sides) for sides in parts if sides.index(max(sides)) == i) for i in (0, 1))
        return "compute" if compute_s > bandwidth_s else "bandwidth"

    def _linear_sides_s(self, tokens: int) -> list[tuple[float, float]]:
        """(seconds by bytes, seconds by FLOPs) of the dense layers and of the experts."""
        work = self.work
        dense = _sides_s(self.rates.dense, work.dense_bytes, 2.0 * work.dense_parameters * tokens)
        if not work.experts:
            return [dense]
        expert_bytes = work.expert_layers * work.experts_read(tokens) * work.expert_bytes
        expert_parameters = work.expert_layers * work.expert_tokens(tokens) * work.expert_parameters
        return [dense, _sides_s(self.rates.experts, expert_bytes, 2.0 * expert_parameters)]

    def _head_sides_s(self, sampled: int) -> tuple[float, float]:
        return _sides_s(self.rates.head, self.work.head_bytes, 2.0 * self.work.head_parameters * sampled)

    def _activations_s(self, tokens: int) -> float:
        """Reads and writes of hidden vectors between the matrix products."""
        work, calibration = self.work, self.calibration
        passes = calibration.replicated_activation_passes + (
            calibration.sharded_activation_passes / work.tensor_parallel_size
        )
        row_bytes = ACTIVATION_BYTES * work.hidden_size * tokens
        return work.layers * passes * row_bytes / self.rates.activations_bytes_per_s

    def _decode_sides_s(self, context: int) -> list[tuple[float, float]]:
        """Of decodes with this many context tokens together, one entry a group of layers; windows are not looked at."""
        return [
            (
                group.count * context * group.kv_bytes / self.rates.kv_bytes_per_s,
                group.count * context * group.flops / self.rates.attention_flop_per_s,
            )
            for group in self.work.attention
        ]

    def _prefill_sides_s(self, requests: int, chunk: int, context: int) -> list[tuple[float, float]]:
        """Of ``requests`` equal chunks: attention and up-projection of each group; windows are not looked at."""
        pairs = causal_pairs(chunk, context, None)
        sides = []
        for group in self.work.attention:
            read_s = context * prefill_key_s(group, self.rates)
            by_bytes_s, by_flops_s = cached_sides_s(group, self.rates)
            times, cached = requests * group.count, context - chunk
            sides.append((times * read_s, times * pairs * group.prefill_flops / self.rates.attention_flop_per_s))
            sides.append((times * cached * by_bytes_s, times * cached * by_flops_s))
        return sides

    def floor_ps(self, batch: Batch) -> int:
        """The physical floor of a step: its weights read once at the data sheet's bandwidth, nothing else."""
        weight_bytes = self.work.weight_bytes(batch.tokens, batch.sampled)
        return int(PS_PER_S * weight_bytes / self._bandwidth_bytes_per_s)


def _sides_s(linear: LinearRates, weight_bytes: float, flops: float) -> tuple[float, float]:
    """Seconds by bytes and by FLOPs."""
    return weight_bytes / linear.bytes_per_s, flops / linear.flop_per_s


def _check(gpu: GpuSpec, parallelism: Parallelism, kv_dtype_bytes: float, *, whole: bool) -> None:
    if whole and parallelism.pipeline_parallel_size != 1:
        raise InputError(
            f"pipeline_parallel_size is {parallelism.pipeline_parallel_size}: a step passes every stage in turn while "
            "other batches fill them, so that it has no one length",
            where="parallelism.pipeline_parallel_size",
            remedy="use PipelinedRoofline: one model a stage, or set it to 1",
        )
    if parallelism.tensor_parallel_size < 1:
        raise InputError(
            f"tensor_parallel_size is {parallelism.tensor_parallel_size}",
            where="parallelism.tensor_parallel_size",
            remedy="set it to 1 or more",
        )
    if not gpu.bandwidth_bytes_per_s > 0.0:
        raise InputError(
            f"bandwidth_bytes_per_s of {gpu.name} is {gpu.bandwidth_bytes_per_s:g}",
            where="gpu.bandwidth_bytes_per_s",
            remedy="give the data sheet's figure",
        )
    if not kv_dtype_bytes > 0.0:
        raise InputError(
            f"kv_dtype_bytes is {kv_dtype_bytes:g}", where="engine.kv_cache_dtype", remedy="use auto or fp8"
        )


def _computes_text(linear: LinearRates) -> str:
    shares = [f"{dtype} ({share:.0%})" for dtype, share in linear.computes if round(100 * share)]
    return " and ".join(shares) if len(shares) > 1 else linear.compute_dtype


def _assumptions(model: ModelSpec, gpu: GpuSpec, chosen: Rates, work: RankWork) -> tuple[str, ...]:
    """What the numbers rest on beyond the calibration, for the report."""
    kinds = {group.kind for group in model.attention}
    notes = [f"linear layers compute in {_computes_text(chosen.dense)}"]
    if chosen.widened:
        notes.append(f"no {' or '.join(chosen.widened)} peak is known for {gpu.name}: such weights compute in 16 bit")
    if model.num_experts:
        if chosen.experts.computes != chosen.dense.computes:
            notes.append(f"experts compute in {_computes_text(chosen.experts)}")
        notes.append("experts are picked uniformly and independently; real routers hit fewer different ones")
        if work.expert_ranks > 1:
            notes.append(
                f"expert parallelism: a step waits for the busiest of {work.expert_ranks} ranks (expected maximum "
                "under such picks; real routers load them less evenly) and for the same all-reduce as without it"
            )
    if "mla" in kinds:
        forms = {
            (group.prefill_head_dim_qk, group.prefill_head_dim_v) for group in model.attention if group.kind == "mla"
        }
        for wide, value in sorted(forms, key=str):
            notes.append(
                "MLA attends to the latent in prompts as in decodes"
                if wide is None
                else f"MLA: decodes attend to the latent, prompts to heads of {wide} (K) and {value} (V) that are "
                "projected up from it, again for the cached part of every later chunk"
            )
    if any(group.indexer_bytes for group in model.attention):
        notes.append("sparse attention is timed as attention over the whole context: an upper bound")
    if "chunked" in kinds:
        notes.append("chunked attention is timed as a sliding window of one chunk: an upper bound")
    if "linear" in kinds:
        notes.append("recurrent layers read and write their state once a step; their own FLOPs are not counted")
    if "cross" in kinds:
        notes.append("cross-attention layers have nothing to attend to: text-only requests")
    return tuple(notes)
