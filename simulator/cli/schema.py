"""``kvplan schema``: JSON Schema of the scenario, for editors."""

from __future__ import annotations

from typing import Any

from simulator.cli.console import Json, Quiet, print_json


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
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "title": "kvplan scenario"}
