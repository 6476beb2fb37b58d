"""The roofline of each pipeline stage, and of what travels between them."""

from __future__ import annotations

from math import ceil
from typing import Literal

from simulator.calibration import Calibration
from simulator.rank_memory import pipeline_stages
from simulator.specs import GpuSpec, ModelSpec, Parallelism
from simulator.step_time.attention_cost import AS_PER_PS, PS_PER_S
from simulator.step_time.pipeline import PipelinedStepTime, StageTransfer
from simulator.step_time.rank_work import ACTIVATION_BYTES
from simulator.step_time.rates import collective
from simulator.step_time.roofline import Roofline

VECTORS = 2  # a token's hidden vector and the residual beside it (vLLM's IntermediateTensors)

NODE_GPUS = 8  # of a usual server


class PipelinedRoofline(PipelinedStepTime):
    """One roofline a stage, and the transfer between them: over the GPU link, or through PCIe where there is none.

    Each tensor-parallel rank sends its part of the vectors, and the receivers gather the rest from each other: together
    that takes as long as the whole message over one link. Latency and share of the link are those of an all-reduce.
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
    ) -> None:
        """Raises InputError: as ``Roofline``, and more stages than layers."""
        self.calibration = calibration
        self.rooflines = tuple(
            Roofline(
                model,
                gpu,
                parallelism,
                calibration,
                kv_dtype_bytes=kv_dtype_bytes,
                compute_dtype=compute_dtype,
                stage=stage,
            )
            for stage in pipeline_stages(model.num_layers, parallelism.pipeline_parallel_size)
        )
        link = collective(gpu, calibration, 2)
        message_bytes = VECTORS * ACTIVATION_BYTES * model.hidden_size
        transfer = StageTransfer(
            latency_ps=round(PS_PER_S * link.latency_s),
            per_token_as=ceil(AS_PER_PS * PS_PER_S * message_bytes / link.bytes_per_s),
        )
        super().__init__(self.rooflines, transfer)
        layers = ", ".join(str(roofline.work.layers) for roofline in self.rooflines)
        over = "the GPU link" if gpu.link_bytes_per_s else "PCIe"
        gpus = parallelism.tensor_parallel_size * parallelism.pipeline_parallel_size
        across = "" if gpus <= NODE_GPUS else f": {gpus} GPUs are more than one node's, and its network is not modelled"
        self.assumptions = (
            *dict.fromkeys(note for roofline in self.rooflines for note in roofline.assumptions),
            f"pipeline stages of {layers} layers; a token's {message_bytes} bytes (hidden vector and residual) travel "
            f"from stage to stage over {over}, as within one node{across}",
            "the host's time of a step and of its requests is charged once, on the first stage",
        )

    def bound_by(self, tokens: int, requests: int, decodes: int, context: int) -> Literal["compute", "bandwidth"]:
        """What makes the length of a batch, by most of its stages (see ``Roofline.bound_by``)."""
        if tokens == decodes:
            requests = decodes  # the others that run are in other batches
        answers = [roofline.bound_by(tokens, max(requests, 1), decodes, context) for roofline in self.rooflines]
        return "compute" if 2 * answers.count("compute") > len(answers) else "bandwidth"
