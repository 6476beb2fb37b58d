"""Decode attention timed against batch, context, block size, KV heads and formats; and the cache's other kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpu_validate.cuda_device import CudaDevice
from gpu_validate.launches import DecodeArrays, append_launch, copy_launch, decode_launches
from gpu_validate.measurements import Point
from gpu_validate.plans import AttentionShape, Plan
from gpu_validate.random_bits import random_bits
from gpu_validate.timing import Stopwatch
from gpu_validate.variants import Variant, choose_splits


def launched_variant(shape: AttentionShape, processors: int) -> Variant:
    """The shape's variant with the splits that fill the card."""
    splits = choose_splits(
        shape.variant, batch=shape.batch, kv_heads=shape.kv_heads, tokens=shape.context, processors=processors
    )
    return shape.variant.with_splits(splits)


def attention_points(device: CudaDevice, watch: Stopwatch, plan: Plan) -> Iterator[Point]:
    """Each shape of the plan; the table's blocks lie in a random order."""
    for held_out, shapes in ((False, plan.attention), (True, plan.held_out_attention)):
        for shape in shapes:
            if shape.kv_bytes <= plan.memory_share * device.facts.memory_bytes - 2 * (1 << 30):
                yield attention_point(device, watch, shape, held_out=held_out)


def attention_point(device: CudaDevice, watch: Stopwatch, shape: AttentionShape, *, held_out: bool = False) -> Point:
    """Times one shape, the merge of splits included."""
    variant = launched_variant(shape, device.facts.processors)
    work = decode_work(device, shape, variant)
    timing = watch.time(work)
    heads = shape.kv_heads * variant.group
    row_bytes = 2 * shape.batch * heads * variant.head_dim * variant.format.size_bytes
    return Point(
        "attention",
        {
            "batch": shape.batch,
            "context": shape.context,
            "block_size": variant.block_size,
            "kv_heads": shape.kv_heads,
            "group": variant.group,
            "head_dim": variant.head_dim,
            "dtype": variant.dtype,
            "kv_dtype": variant.kv_dtype,
            "paged": variant.paged,
            "splits": variant.splits,
        },
        timing,
        bytes=float(shape.kv_bytes + row_bytes),
        flops=4.0 * shape.batch * shape.context * heads * variant.head_dim,
        held_out=held_out,
    )


def decode_work(device: CudaDevice, shape: AttentionShape, variant: Variant) -> Callable[[], None]:
    """The launches of one decode attention over a random cache."""
    cupy, heads = device.cupy, shape.kv_heads * variant.group
    row_blocks = -(-shape.context // variant.block_size)
    pool_shape = (shape.batch * row_blocks, variant.block_size, shape.kv_heads, variant.head_dim)
    keys, values = (random_bits(cupy, pool_shape, variant.kv_dtype, seed=seed) for seed in (1, 2))
    arrays = DecodeArrays(
        random_bits(cupy, (shape.batch, heads, variant.head_dim), variant.dtype),
        keys,
        values,
        random_tables(cupy, shape.batch, row_blocks),
        cupy.asarray(np.full(shape.batch, shape.context, dtype=np.int32)),
    )
    output = cupy.empty((shape.batch, heads, variant.head_dim), dtype=np.uint16)
    launches = decode_launches(
        variant,
        arrays,
        output,
        lambda shape: cupy.empty(shape, dtype=np.float32),
        scale=variant.head_dim**-0.5,
    )
    device.prepare((launch.kernel, variant) for launch in launches)

    def work() -> None:
        for launch in launches:
            device.launch(launch, variant)

    return work


def random_tables(cupy: Any, batch: int, row_blocks: int, *, seed: int = 3) -> Any:
    """Tables [batch, row_blocks] int32 that name every block once, in a random order."""
    order = np.random.default_rng(seed).permutation(batch * row_blocks).astype(np.int32)
    return cupy.asarray(order.reshape(batch, row_blocks))


def cache_points(device: CudaDevice, watch: Stopwatch, plan: Plan) -> Iterator[Point]:
    """KV append and block copies, of one layer."""
    cupy, variant, kv_heads = device.cupy, plan.step_variant, 8
    block = (variant.block_size, kv_heads, variant.head_dim)
    numbers = kv_heads * variant.head_dim
    for batch in plan.append_batches:
        keys, values = (random_bits(cupy, (batch, *block), variant.kv_dtype, seed=seed) for seed in (1, 2))
        new = tuple(random_bits(cupy, (batch, *block[1:]), variant.dtype, seed=seed) for seed in (3, 4))
        positions = cupy.asarray(np.zeros(batch, dtype=np.int32))
        launch = append_launch(keys, values, (new[0], new[1]), random_tables(cupy, batch, 1), positions)
        timing = watch.time(lambda launch=launch: device.launch(launch, variant))  # type: ignore[misc]
        moved = 2.0 * batch * numbers * (variant.format.size_bytes + variant.kv_format.size_bytes)
        yield Point("append", {"batch": batch, "kv_heads": kv_heads}, timing, bytes=moved)
    for count in plan.copied_blocks:
        keys, values = (random_bits(cupy, (2 * count, *block), variant.kv_dtype, seed=seed) for seed in (1, 2))
        order = np.random.default_rng(5).permutation(2 * count).astype(np.int32)
        launch = copy_launch(keys, values, cupy.asarray(order.reshape(count, 2)))
        timing = watch.time(lambda launch=launch: device.launch(launch, variant))  # type: ignore[misc]
        moved = 4.0 * count * variant.block_size * numbers * variant.kv_format.size_bytes
        yield Point("copy_blocks", {"blocks": count, "block_size": variant.block_size}, timing, bytes=moved)
