"""The text of ``kvplan workload``: plain ASCII, to be pasted into an issue as it stands."""

from __future__ import annotations

from typing import Any

_LABEL = 34
_STATISTICS = ("mean", "cv", "p50", "p90", "p95", "p99", "max")


def describe_text(facts: dict[str, Any]) -> str:
    """The dict of :func:`workloads.describe.describe` as lines."""
    lines = [*_rows(facts), "", *_lengths(facts), "", *_arrivals(facts["arrivals"]), "", *_sharing(facts)]
    if facts["sessions"] is not None:
        sessions = facts["sessions"]
        lines.append(_line("Sessions", f"{sessions['sessions']} of {sessions['mean_turns']:.2f} turns on average"))
        lines.append(_line("Mean think time", f"{sessions['mean_think_s']:.3g} s"))
    if facts["over_limit"] is not None:
        lines += ["", *_over(facts["over_limit"])]
    if len(facts["classes"]) > 1:
        lines += ["", *_classes(facts["classes"])]
    if facts["notes"]:
        lines += ["", "Notes", *(f"  - {note}" for note in facts["notes"])]
    return _ascii("\n".join(lines)) + "\n"


def _rows(facts: dict[str, Any]) -> list[str]:
    lines = []
    if facts["path"] is not None:
        lines.append(_line("Trace", f"{facts['path']} ({facts['format']})"))
        lines.append(_line("Rows read", f"{facts['rows_read']}"))
        lines.append(_line("Rows dropped", f"{facts['rows_dropped']}"))
        for dropped in facts["dropped"]:
            lines.append(f"  {dropped['count']} x {dropped['reason']}")
            for example in dropped["examples"][:5]:
                shown = f": {example['shown']}" if example["shown"] else ""
                lines.append(f"    line {example['line']}{shown}")
    lines.append(_line("Requests", f"{facts['rows']}"))
    return lines


def _lengths(facts: dict[str, Any]) -> list[str]:
    lines = ["Tokens".ljust(14) + "".join(name.rjust(11) for name in _STATISTICS) + "total".rjust(15)]
    for key in ("prompt_tokens", "output_tokens", "total_tokens"):
        numbers = facts[key]
        cells = "".join(f"{numbers[name]:11.2f}" if name == "cv" else f"{numbers[name]:11.1f}" for name in _STATISTICS)
        lines.append(f"  {key.removesuffix('_tokens'):<12}{cells}{numbers['total']:15d}")
    if facts["length_correlation"] is not None:
        both = f"{facts['length_correlation']:.3f} (ranks {facts['length_rank_correlation']:.3f})"
        lines.append(_line("Correlation prompt-output", both))
    return lines


def _arrivals(facts: dict[str, Any]) -> list[str]:
    lines = []
    if facts["max_concurrency"] is not None:
        lines.append(_line("Maximum concurrency", f"{facts['max_concurrency']}"))
    if facts["mean_rate_rps"] is None:
        return [*lines, _line("Arrivals", "closed loop" if facts["max_concurrency"] else "all at one time")]
    lines.append(_line("Arrivals over", f"{facts['span_s']:.1f} s"))
    asked = "" if facts["requested_rate_rps"] is None else f" (asked for {facts['requested_rate_rps']:g}/s)"
    lines.append(_line("Mean rate", f"{facts['mean_rate_rps']:.4g}/s{asked}"))
    if facts["peak_rate_rps"]:
        peaks = ", ".join(f"{rate:.4g}/s in {width}" for width, rate in facts["peak_rate_rps"].items())
        lines.append(_line("Peak rate", peaks))
    lines.append(_line("Gaps' cv (Poisson: 1)", f"{facts['gap_cv']:.3f}"))
    if facts["index_of_dispersion"]:
        widths = ", ".join(f"{value:.3g} in {width}" for width, value in facts["index_of_dispersion"].items())
        lines.append(_line("Index of dispersion (Poisson: 1)", widths))
    return lines


def _sharing(facts: dict[str, Any]) -> list[str]:
    size = facts["prefix_block_size"]
    if facts["ideal_prefix_hit_rate"] is None:
        return [_line("Ideal prefix hit rate", "unknown: the trace has no token identities")]
    rate = f"{100 * facts['ideal_prefix_hit_rate']:.1f} % of {facts['prompt_blocks']} blocks of {size} tokens"
    shared = facts["rows_sharing_a_prefix"]
    return [
        _line("Ideal prefix hit rate", rate),
        _line("Ideal cached share of tokens", f"{100 * facts['ideal_cached_token_share']:.1f} %"),
        _line("Prompts that reuse a block", f"{shared} ({100 * shared / facts['rows']:.1f} %)"),
        _line("Prompts with a full block", f"{100 * facts['share_of_prompts_with_a_full_block']:.2f} %"),
    ]


def _over(over: dict[str, Any]) -> list[str]:
    limit = over["max_model_len"]
    prompts = f"{over['prompts_too_long']} ({100 * over['prompts_too_long_share']:.2f} %)"
    rows = f"{over['rows_too_long']} ({100 * over['rows_too_long_share']:.2f} %)"
    return [_line(f"Prompts that {limit} refuses", prompts), _line(f"Prompt + output over {limit}", rows)]


def _classes(classes: dict[str, Any]) -> list[str]:
    lines = ["Class".ljust(22) + "requests".rjust(10) + "share".rjust(9) + "prompt".rjust(10) + "output".rjust(10)]
    for name, facts in classes.items():
        means = [
            "-" if facts[key] is None else f"{facts[key]:.1f}" for key in ("mean_prompt_tokens", "mean_output_tokens")
        ]
        share = f"{100 * facts['share']:.1f} %"
        lines.append(f"  {name:<20}{facts['rows']:>10}{share:>9}{means[0]:>10}{means[1]:>10}")
    return lines


def _line(label: str, value: str) -> str:
    return f"{label:<{_LABEL}}{value}"


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii")
