"""The distribution as the tests see it: its pyproject.toml, its packages, their files and imports."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

# import name -> distribution, where they differ
DISTRIBUTION_OF = {
    "yaml": "pyyaml",
    "annotated_types": "annotated-types",
    "cupy": "cupy-cuda13x",
    "xdist": "pytest-xdist",
    "importlinter": "import-linter",
    "mpl_toolkits": "matplotlib",
}


def source_files() -> list[Path]:
    """Every file of the packages, but what Python or an editor left there."""
    return sorted(
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    )


def module_names() -> list[str]:
    """Dotted names of all modules of the packages."""
    names = []
    for path in source_files():
        if path.suffix == ".py":
            parts = path.relative_to(ROOT).with_suffix("").parts
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """(module, line) of each absolute import in a file, also those inside functions.

    ``from a import b`` is ``a.b``: b may be a module.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def foreign_imports(paths: list[Path]) -> dict[str, str]:
    """Imported distributions that are neither ours nor the standard library's -> one place."""
    found: dict[str, str] = {}
    for path in paths:
        for module, line in imports(path):
            name = module.partition(".")[0]
            if name not in sys.stdlib_module_names and name not in PACKAGES and name != "tests":
                found.setdefault(DISTRIBUTION_OF.get(name, name), f"{path.relative_to(ROOT)}:{line}")
    return found


def declared(group: str | None = None) -> set[str]:
    """Names of the distributions that pyproject.toml asks for: the plain ones, or an extra's."""
    project = PYPROJECT["project"]
    lines = project["dependencies"] if group is None else project["optional-dependencies"][group]
    return {re.split(r"[^A-Za-z0-9_.-]", line)[0].lower() for line in lines}
