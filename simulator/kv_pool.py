"""The KV pool of one replica, from its memory or as the settings state it."""

from __future__ import annotations

from simulator.allocators.pools import ContiguousPool, KvGroupShape, PagedPool, PoolConfig
from simulator.engine_presets import preset_of
from simulator.engine_settings import ContiguousAllocator, EngineSettings
from simulator.errors import DoesNotFitError
from simulator.kv_groups import KvLayout
from simulator.memory_budget import MemoryBudget
from simulator.memory_settings import Resolved

GIB = 1 << 30


def make_pool(
    engine: EngineSettings, layout: KvLayout, memory: MemoryBudget | None, resolved: Resolved
) -> tuple[PoolConfig, int, list[str]]:
    """The pool, its slots (the null block's included) and warnings.

    With several KV groups a slot is a token of the first group's layers, and so are the bytes of one.

    Raises:
        DoesNotFitError: the GPU has no room for one request of max_model_len.
    """
    preset = preset_of(engine)
    block_size = layout.groups[0].block_tokens if layout.groups else layout.block_size
    per_token = layout.bytes_per_block // block_size
    if engine.num_gpu_blocks_override is not None:
        blocks = engine.num_gpu_blocks_override
        slots = blocks * block_size
    elif engine.max_total_tokens is not None:
        blocks = engine.max_total_tokens // block_size + preset.null_block  # the null block comes on top
        slots = engine.max_total_tokens
    elif memory is not None:
        _refuse_what_does_not_fit(memory)
        blocks, slots = memory.num_gpu_blocks, memory.kv_pool_bytes_per_gpu // per_token
    else:
        assert engine.kv_cache_memory_bytes is not None  # scenario.needs_gpu
        blocks = engine.kv_cache_memory_bytes // layout.bytes_per_block
        slots = engine.kv_cache_memory_bytes // per_token
    groups = _groups(layout)
    warnings = _warnings(blocks, slots, layout, groups, preset.null_block, memory, resolved)
    allocator = engine.allocator
    if isinstance(allocator, ContiguousAllocator):
        return ContiguousPool(slots, allocator.reservation, allocator.fit, per_token), slots, warnings
    if engine.max_total_tokens is not None:
        slots = blocks * block_size
    return PagedPool(blocks, block_size, per_token, groups, preset.null_block), slots, warnings


def _warnings(
    blocks: int,
    slots: int,
    layout: KvLayout,
    groups: tuple[KvGroupShape, ...],
    null_block: bool,
    memory: MemoryBudget | None,
    resolved: Resolved,
) -> list[str]:
    """A pool that the GPU does not hold, and one that does not hold a request."""
    warnings = []
    asked_bytes = blocks * layout.bytes_per_block
    if memory is not None and asked_bytes > memory.kv_pool_bytes_per_gpu:
        warnings.append(
            f"the KV pool that is asked for, {blocks} blocks, takes {asked_bytes / GIB:.2f} GiB a GPU; by the memory "
            f"table {memory.gpu.name} has {memory.kv_pool_bytes_per_gpu / GIB:.2f} GiB for it: the real server may "
            "run out of memory"
        )
    length = resolved.max_model_len
    if groups:
        need = layout.blocks_per_request(length, resolved.max_num_batched_tokens)
        if need > blocks - null_block:
            warnings.append(
                f"the KV pool of {blocks} blocks is smaller than one request of max_model_len {length}, which needs "
                f"{need}: the real server would refuse to start (lower engine.max_model_len)"
            )
    elif slots < length:
        warnings.append(
            f"the KV pool of {slots} tokens is smaller than one request of max_model_len {length}: "
            "the real server would refuse to start (lower engine.max_model_len)"
        )
    return warnings


def _groups(layout: KvLayout) -> tuple[KvGroupShape, ...]:
    """The KV groups, where it is not one that keeps every token."""
    if len(layout.groups) == 1 and layout.groups[0].kind == "full":
        return ()
    return tuple(
        KvGroupShape(group.block_tokens, group.window_tokens if group.kind == "sliding" else None)
        for group in layout.groups
    )


def groups_note(pool: PoolConfig) -> tuple[str, ...]:
    """How to read the shares of a pool that several groups of layers draw from."""
    if isinstance(pool, ContiguousPool) or not pool.groups:
        return ()
    shapes = [
        f"with blocks of {group.block_size} tokens"
        + (f" and a window of {group.window_tokens}" if group.window_tokens else "")
        for group in pool.groups
    ]
    listed = ", ".join(f"{shapes.count(shape)} {shape}" for shape in dict.fromkeys(shapes))
    return (
        f"{len(pool.groups)} KV groups share the blocks ({listed}); in the shares of the KV memory a token counts "
        "once, and what further groups hold of it stands under internal fragmentation",
    )


def _refuse_what_does_not_fit(memory: MemoryBudget) -> None:
    if memory.fits:
        return
    length = memory.settings.max_model_len
    what = f"{memory.model.name} with one request of {length} tokens does not fit on {memory.gpu.name}"
    raise DoesNotFitError(f"{what}: {memory.formula[0]}", where="gpu", remedy=remedies(memory))


def remedies(memory: MemoryBudget) -> str:
    """The changes that were found to work, in one line."""
    changes = [remedy.change for remedy in memory.remedies]
    return "what would work: " + "; ".join(changes) if changes else "choose a larger GPU or a smaller model"
