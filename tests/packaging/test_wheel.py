"""The wheel: what lies in it, and that it runs outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.packaging.distribution import PACKAGES, PYPROJECT, source_files
from tests.support import ROOT


def run(*args: str | Path, cwd: Path, timeout_s: int = 300, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command with no way back into the checkout."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_"))} | variables
    return subprocess.run(args, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without network: the backend is the one that is installed here."""
    out = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", out]
    proc = run(sys.executable, "-m", "pip", "wheel", *options, ROOT, cwd=out)
    assert proc.returncode == 0, proc.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bin_dir(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a bare virtual environment that has the wheel; a .pth shows it our dependencies."""
    home = tmp_path_factory.mktemp("venv")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(home)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    proc = run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=home)
    assert proc.returncode == 0, proc.stderr
    (site,) = home.glob("lib/python*/site-packages")
    # After the wheel is in, as pip would take an editable kvplan over there for this one. A .pth file inside a
    # folder that a .pth names is not read, so the checkout stays out of sight.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    return python.parent


def test_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    # The pictures of README.md stay at home.
    expected = {path for path in (p.relative_to(ROOT).as_posix() for p in source_files()) if "/samples/" not in path}
    assert names == expected
    assert not any(name.startswith("tests/") for name in names)


def test_wheel_carries_licence_script_and_plain_requirements(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = {name.partition(".dist-info/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
        assert "Apache License" in archive.read(info["licenses/LICENSE"]).decode()
        assert (
            f"kvplan = {PYPROJECT['project']['scripts']['kvplan']}" in archive.read(info["entry_points.txt"]).decode()
        )
        metadata = archive.read(info["METADATA"]).decode()
    plain = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert not [line for line in plain if "cupy" in line or "pytest" in line]


def test_installed_packages_come_from_the_wheel(bin_dir: Path, tmp_path: Path) -> None:
    code = f"import {', '.join(PACKAGES)}\nfor p in ({', '.join(PACKAGES)}): print(p.__file__)"
    proc = run(bin_dir / "python", "-c", code, cwd=tmp_path)
    assert proc.returncode == 0, proc.stderr
    for line in proc.stdout.split():
        assert Path(line).is_relative_to(bin_dir.parent), f"{line} is not the wheel's"


@pytest.mark.parametrize("name", ["simulator", "workloads", "reports"])
def test_a_foreign_package_of_our_name_is_refused_by_name(bin_dir: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("", encoding="utf-8")
    proc = run(bin_dir / "kvplan", "--help", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert proc.returncode == 2
    assert "Traceback" not in proc.stderr
    assert str(tmp_path / name) in proc.stderr


def test_quickstart_runs_from_an_empty_folder(bin_dir: Path, tmp_path: Path) -> None:
    proc = run(bin_dir / "kvplan", "run", "quickstart", cwd=tmp_path)
    assert proc.returncode == 0, proc.stderr
    assert "Traceback" not in proc.stderr
    report = tmp_path / "out" / "quickstart" / "report.html"
    assert report.is_file(), sorted(tmp_path.rglob("*"))
    assert "<svg" in report.read_text(encoding="utf-8")
