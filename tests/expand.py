"""A run log step by step: what its rows mean, spelt out slowly."""

from __future__ import annotations

from simulator.run_log import ReplicaLog

Step = dict[str, int]


def steps_of(log: ReplicaLog) -> list[Step]:
    """One dictionary per step of the replica, whatever rows the log has."""
    table = {name: column.tolist() for name, column in log.segment_columns().items()}
    steps: list[Step] = []
    for i, count in enumerate(table["steps"]):
        start, used = table["start_ps"][i], table["used_slots"][i]
        decodes = table["decodes"][i]
        for j in range(count):
            if j and log.pool.kind == "paged":
                at = table["growth_at"][i] + (j - 1) % log.pool.block_size
                used += log.growth_blocks[at] * log.pool.block_size
            duration = table["duration_ps"][i] + j * table["growth_ps"][i]
            steps.append(
                {
                    "step": table["step"][i] + j,
                    "start_ps": start,
                    "duration_ps": duration,
                    "tokens": table["tokens"][i],
                    "decodes": decodes,
                    "sampled": table["sampled"][i],
                    "regular": table["regular"][i] if j == 0 else decodes,
                    "context": table["context"][i] + j * decodes,
                    "running": table["running"][i],
                    "stored_tokens": table["stored_tokens"][i] + j * decodes,
                    "used_slots": used,
                    "head_wait": table["head_wait"][i],
                    "saved_slots": table["saved_slots"][i],
                }
            )
            start += duration
    return steps
