"""``kvplan size``: the memory arithmetic."""

from __future__ import annotations

from typing import Annotated

import typer

from simulator.cli.console import Json, Quiet, print_json


def size(
    model: Annotated[str, typer.Option(help="A catalogue name, a config.json, or a folder that holds one.")],
    gpu: Annotated[str | None, typer.Option(help="A catalogue name; without it, only tokens and weights.")] = None,
    tensor_parallel_size: Annotated[int, typer.Option(min=1, help="GPUs that share each layer.")] = 1,
    pipeline_parallel_size: Annotated[int, typer.Option(min=1, help="Stages that share the layers.")] = 1,
    enable_expert_parallel: Annotated[
        bool, typer.Option("--enable-expert-parallel", help="Ranks hold whole experts instead of a slice of each.")
    ] = False,
    gpu_memory_utilization: Annotated[float | None, typer.Option(help="The engine's memory fraction.")] = None,
    max_model_len: Annotated[int | None, typer.Option(min=1, help="Context, tokens.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(min=1, help="Token budget of a step.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="Requests that run at once.")] = None,
    block_size: Annotated[int | None, typer.Option(min=1, help="Tokens of a KV block.")] = None,
    kv_cache_dtype: Annotated[str | None, typer.Option(help="auto, bfloat16, fp8, ...")] = None,
    weight_dtype: Annotated[str | None, typer.Option(help="Instead of the checkpoint's own: fp8, int4, ...")] = None,
    engine: Annotated[str | None, typer.Option(help="vllm, sglang or trtllm [default: vllm].")] = None,
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager", help="No CUDA graphs.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Memory arithmetic with the formula shown: whether a model fits, and what would make it fit (else exit 3)."""
    from simulator.errors import InputError
    from simulator.sizing import request_from_options, size_dict, size_text
    from simulator.sizing import size as sized

    try:
        result = sized(
            request_from_options(
                model=model,
                gpu=gpu,
                tensor_parallel_size=tensor_parallel_size,
                pipeline_parallel_size=pipeline_parallel_size,
                enable_expert_parallel=enable_expert_parallel,
                gpu_memory_utilization=gpu_memory_utilization,
                max_model_len=max_model_len,
                max_num_batched_tokens=max_num_batched_tokens,
                max_num_seqs=max_num_seqs,
                block_size=block_size,
                kv_cache_dtype=kv_cache_dtype,
                weight_dtype=weight_dtype,
                engine=engine,
                enforce_eager=enforce_eager,
            )
        )
    except InputError as error:
        if error.where and error.where.isidentifier():  # the name of a setting, which is an option here
            error.where = "--" + error.where.replace("_", "-")
        raise
    print_json(size_dict(result)) if as_json else print(size_text(result), end="")
    if result.fits is False:
        raise typer.Exit(3)
