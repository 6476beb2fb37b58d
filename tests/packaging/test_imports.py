"""What the packages import: only what is declared, nothing slow at start-up; and each module has its layer."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.packaging.distribution import (
    PACKAGES,
    PYPROJECT,
    declared,
    foreign_imports,
    imports,
    module_names,
    source_files,
)
from tests.support import ROOT

# Each costs tenths of a second or more; functions that need one import it themselves.
NOT_AT_IMPORT_TIME = ["pandas", "matplotlib", "jinja2", "scipy", "cupy", "pyarrow", "pytest"]


def run_python(code: str) -> str:
    proc = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert proc.returncode == 0, proc.stderr
    return proc.stdout


def test_every_module_imports_and_none_pulls_in_what_is_slow() -> None:
    names = [name for name in module_names() if not name.endswith("__main__")]
    code = f"""
import importlib, json, sys
found = {{}}
for name in {names!r}:
    importlib.import_module(name)
    for slow in {NOT_AT_IMPORT_TIME!r}:
        if slow in sys.modules:
            found.setdefault(slow, name)
print(json.dumps(found))
"""
    found = json.loads(run_python(code))
    assert not found, f"imported at import time (package -> first module that does): {found}"


def test_gpu_validate_runs_without_what_a_gpu_image_lacks() -> None:
    names = [n for n in module_names() if n.startswith("gpu_validate") and not n.endswith("__main__")]
    code = f"""
import importlib, sys
for name in ("simpy", "pydantic", "pandas", "matplotlib", "jinja2"):
    sys.modules[name] = None  # importing it now raises ImportError
for name in {names!r}:
    importlib.import_module(name)
"""
    run_python(code)


def test_gpu_validate_imports_of_ours_only_what_runs_there() -> None:
    allowed = ("simulator.specs", "simulator.catalog", "simulator.calibration", "simulator.step_time")
    allowed += ("simulator.errors", "gpu_validate")
    stray = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in source_files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] == "gpu_validate"
        for name, line in imports(path)
        if name.partition(".")[0] in PACKAGES and not f"{name}.".startswith(tuple(f"{a}." for a in allowed))
    ]
    assert not stray, f"gpu_validate may import of ours only {allowed}: {stray}"


def test_what_the_packages_import_is_declared() -> None:
    allowed = declared() | declared("gpu") | declared("parquet")
    stray = {
        name: place
        for name, place in foreign_imports([path for path in source_files() if path.suffix == ".py"]).items()
        if name not in allowed
    }
    assert not stray, f"imported, but not in [project] dependencies or an extra for users: {stray}"


def test_each_dependency_is_imported() -> None:
    used = foreign_imports([path for path in source_files() if path.suffix == ".py"])
    assert declared() <= used.keys(), f"declared but never imported: {declared() - used.keys()}"


def test_what_the_tests_import_is_declared() -> None:
    allowed = declared() | declared("dev")
    # Scripts called ask_*.py run in another planner's own environment.
    ours = [path for path in sorted((ROOT / "tests").rglob("*.py")) if not path.name.startswith("ask_")]
    stray = {
        name: place
        for name, place in foreign_imports(ours).items()
        if name not in allowed | declared("gpu") | declared("parquet")
    }
    assert not stray, f"imported by a test, but not in the extra dev: {stray}"


def test_every_room_of_simulator_stands_in_a_layer() -> None:
    (contract,) = [c for c in PYPROJECT["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    layered = {name.strip(" ()") for layer in contract["layers"] for name in layer.replace("|", ":").split(":")}
    rooms = {".".join(name.split(".")[:2]) for name in module_names() if name.startswith("simulator.")}
    assert rooms <= layered, f"give these a layer in pyproject.toml, [tool.importlinter]: {sorted(rooms - layered)}"
