"""The folder of a sweep: each point lands in it whole or not at all, and survives whatever ends the process.

A point is its ``result.json``, or ``error.json`` where it failed, and then ``provenance.json``, which names the key of
the point and the hash of that file. Without a matching provenance there is no point: a file that was cut short by a
kill or a full disk, or changed by hand, is never taken for a result.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from simulator.errors import InputError
from simulator.planner.kept_folder import KeptFolder, write_durably
from simulator.planner.point import EXIT_CODES, STATUSES, Outcome, Point, Status
from simulator.result_files import json_text

POINTS = "points"
RESULT, ERROR, PROVENANCE = "result.json", "error.json", "provenance.json"


class SweepFolder(KeptFolder):
    """Reads and writes one sweep's folder."""

    PARTS, LANDED = POINTS, f"*/{PROVENANCE}"
    WHOLE = ("sweep.json", "points.csv", "points.json", "summary.csv", "scenario.yaml", "provenance.json")
    FOREIGN: ClassVar = {RESULT: "a run", "probes": "a capacity search"}
    WHAT = "points of a sweep"

    def clear(self) -> None:
        """Removes an earlier sweep."""
        self.open_again()
        self._remove(self._folders())

    def kept(self) -> dict[str, str]:
        """Folder of each whole point that stands there, by the point's key.

        Not of one that ``failed``: a worker without memory is no property of the point, so it gets another try.
        """
        found: dict[str, str] = {}
        for folder in self._folders():
            facts = _json(self.out / POINTS / folder / PROVENANCE)
            key = facts.get("key")
            if (
                isinstance(key, str)
                and facts.get("status") != "failed"
                and self.outcome_text(folder, facts) is not None
            ):
                found.setdefault(key, folder)
        return found

    def outcome_text(self, folder: str, facts: Mapping[str, Any] | None = None) -> tuple[str, str] | None:
        """Name and text of a point's file, if it is the one that its provenance describes."""
        here = self.out / POINTS / folder
        facts = _json(here / PROVENANCE) if facts is None else facts
        name = facts.get("file")
        if name not in (RESULT, ERROR):
            return None
        try:
            raw = (here / name).read_bytes()
        except OSError:
            return None
        if hashlib.sha256(raw).hexdigest() != facts.get("sha256"):
            return None
        return name, raw.decode()

    def read(self, point: Point) -> tuple[Status, str | None, dict[str, Any]]:
        """Status, error and result (empty where it failed) of a point that stands there."""
        facts = _json(self.out / POINTS / point.folder / PROVENANCE)
        found = self.outcome_text(point.folder, facts)
        if found is None or facts.get("key") != point.key:
            raise _changed(self.out / POINTS / point.folder)
        name, text = found
        content = json.loads(text)
        if name == ERROR:
            return content["status"], content["error"], {}
        status = facts.get("status")
        assert status in STATUSES
        return status, facts.get("error"), content

    def holds(self, point: Point) -> bool:
        """Whether the point stands whole in its own folder."""
        facts = _json(self.out / POINTS / point.folder / PROVENANCE)
        return facts.get("key") == point.key and self.outcome_text(point.folder, facts) is not None

    def copy(self, folder: str, point: Point) -> None:
        """Fills a point from the folder of another point of the same key."""
        self._write(point, *self._content(folder, point))

    def move(self, kept: Mapping[str, str], points: Iterable[Point]) -> None:
        """Puts kept points where a changed grid has them.

        All are read before any is written, for a point may lie where another one belongs.
        """
        moved = [
            (point, self._content(kept[point.key], point))
            for point in points
            if point.key in kept and not self.holds(point)
        ]
        for point, content in moved:
            self._write(point, *content)

    def _content(self, folder: str, point: Point) -> tuple[str, str, dict[str, Any]]:
        facts = _json(self.out / POINTS / folder / PROVENANCE)
        found = self.outcome_text(folder, facts)
        if found is None:
            raise _changed(self.out / POINTS / folder)
        name, text = found
        if name == RESULT:
            text = json_text({**json.loads(text), "variant": point.variant or None})
        return name, text, facts

    def save(self, point: Point, outcome: Outcome, more: Mapping[str, Any]) -> None:
        """Writes a point: its content first, its provenance, which makes it count, last."""
        facts = {key: value for key, value in asdict(outcome).items() if key != "result"} | dict(more)
        if outcome.result is not None:
            self._write(point, RESULT, outcome.result, facts)
        else:
            code = EXIT_CODES[outcome.status]
            text = json_text({"status": outcome.status, "exit_code": code, "error": outcome.error})
            self._write(point, ERROR, text, facts)

    def _write(self, point: Point, name: str, text: str, facts: Mapping[str, Any]) -> None:
        here = self.out / POINTS / point.folder
        # An older point of that folder goes at once, for its provenance would not fit the new content.
        (here / PROVENANCE).unlink(missing_ok=True)
        write_durably(here / name, text)
        (here / (ERROR if name == RESULT else RESULT)).unlink(missing_ok=True)
        sha = hashlib.sha256(text.encode()).hexdigest()
        facts = {"schema_version": 1, **facts, "key": point.key, "file": name, "sha256": sha}
        write_durably(here / PROVENANCE, json_text(facts))

    def forget_others(self, points: Iterable[Point]) -> None:
        """Removes the folders of points that the sweep no longer asks for."""
        mine = {point.folder for point in points}
        self._remove(folder for folder in self._folders() if folder not in mine)

    def _remove(self, folders: Iterable[str]) -> None:
        for folder in list(folders):
            shutil.rmtree(self.out / POINTS / folder)

    def _folders(self) -> list[str]:
        """Names of the folders of points, ours only, in order."""
        below = (path.name for path in (self.out / POINTS).glob("[0-9][0-9][0-9][0-9]*") if path.is_dir())
        return sorted(below)


def _changed(folder: Path) -> InputError:
    return InputError("was changed while the sweep ran", where=str(folder), remedy="give --resume")


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
