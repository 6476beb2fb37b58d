"""``kvplan schema``: JSON Schema of the scenario, for editors."""

from __future__ import annotations

from typing import Any

from simulator.cli.console import Json, Quiet, print_json
from simulator.slo_presets import SLO_PRESETS


def schema(as_json: Json = False, quiet: Quiet = False) -> None:
    """JSON Schema of the scenario, for editors (it is JSON with and without --json)."""
    print_json(scenario_schema())


def scenario_schema() -> dict[str, Any]:
    """Drawn by pydantic from the dataclasses that a scenario is bound to."""
    import pydantic

    from simulator.scenario_settings import ScenarioWithVariants

    made = pydantic.TypeAdapter(ScenarioWithVariants).json_schema()
    for part in (made, *made["$defs"].values()):
        if "properties" in part:
            part["additionalProperties"] = False  # an unknown key is an error
            if "slo" in part["properties"]:
                part["properties"]["slo"] = _with_presets(part["properties"]["slo"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "title": "kvplan scenario"}


def _with_presets(limits: dict[str, Any]) -> dict[str, Any]:
    """Limits as pydantic draws them, or the name of a preset, which is written out before binding."""
    named = {
        "oneOf": [
            {"const": name, "description": f"{preset.text()} ({preset.source})"} for name, preset in SLO_PRESETS.items()
        ]
    }
    dropped = {
        metric: {"anyOf": [limits["additionalProperties"], {"type": "null"}]} for metric in ("ttft_ms", "tpot_ms")
    }
    return {"anyOf": [named, limits | {"properties": {"preset": named} | dropped}]}
