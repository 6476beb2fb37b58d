"""Models of the catalogue (``models/*.json``: a shape in config.json's terms, with its source), and config files."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from simulator.catalog.names import data_files, pick, plain
from simulator.errors import InputError
from simulator.specs import ModelSpec, model_from_config

# A fine-tune keeps its base model's shape; a quantised one does not keep its bytes, so those words stay.
_TUNED = re.compile(r"-(instruct|hf|it|chat|base)$")


def model_names() -> list[str]:
    """Catalogue names, alphabetical."""
    return list(data_files("models", ".json"))


def find_model(name_or_path: str | Path) -> ModelSpec:
    """A model by catalogue name, Hugging Face path, ``config.json`` or a folder that holds one.

    A plain name is the catalogue's, whatever lies in the current folder; ``./NAME`` is the folder.

    Raises:
        InputError: nothing has that name, or the config is not understood.
    """
    text = str(name_or_path).strip()
    if not text:
        raise InputError("a model needs a name", remedy="e.g. llama-3.1-8b, or the path of a config.json")
    path = Path(text).expanduser()
    if path.suffix == ".json" or ((len(path.parts) > 1 or text.startswith((".", "~"))) and path.exists()):
        return _from_path(path)
    try:
        known = _catalogue_name(text)
    except InputError:
        if not path.exists():
            raise
        return _from_path(path)
    return _read(known)


def huggingface_name(name: str) -> str | None:
    """The Hugging Face repository of a model of the catalogue; None for a name that is not in it."""
    file = data_files("models", ".json").get(name)
    return None if file is None else str(json.loads(file.read_text(encoding="utf-8"))["huggingface"])


@functools.cache
def _read(known: str) -> ModelSpec:
    entry = json.loads(data_files("models", ".json")[known].read_text(encoding="utf-8"))
    source = f"catalogue {entry['name']}: {entry['source']}, {entry['date']}"
    return model_from_config(entry["config"], name=entry["name"], source=source)


def _catalogue_name(text: str) -> str:
    spellings = dict(_spellings())
    asked = plain(text)
    while asked not in spellings and _TUNED.search(asked):
        asked = _TUNED.sub("", asked)
    return pick(asked, spellings, "model")


@functools.cache
def _spellings() -> tuple[tuple[str, str], ...]:
    """Every spelling of a catalogue name, and the name."""
    spellings: dict[str, str] = {}
    for known, file in data_files("models", ".json").items():
        entry = json.loads(file.read_text(encoding="utf-8"))
        for spelling in (known, plain(entry["huggingface"]), *entry["aliases"]):
            spellings.setdefault(spelling, known)
    return tuple(spellings.items())


def _from_path(path: Path) -> ModelSpec:
    file = path / "config.json" if path.is_dir() else path
    config = _json(file)
    quantized = file.with_name("hf_quant_config.json")
    if "quantization_config" not in config and quantized.is_file():
        config = {**config, "quantization_config": _modelopt(_json(quantized))}
    name = file.parent.name if file.name == "config.json" and file.parent.name else file.stem
    return model_from_config(config, name=name, source=str(file))


def _modelopt(document: dict[str, Any]) -> dict[str, Any]:
    """ModelOpt's own file beside config.json, in the terms of quantization_config."""
    inner = document.get("quantization")
    return {"quant_method": "modelopt", **(inner if isinstance(inner, dict) else document)}


def _json(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            f"there is no file {file}", remedy="give a catalogue name, a config.json or a folder that holds one"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the model config: {error}", where=str(file)) from error
    except json.JSONDecodeError as error:
        where = f"{file}:{error.lineno}:{error.colno}"
        raise InputError(f"not valid JSON: {error.msg}", where=where, remedy="mend the file") from error
    if not isinstance(document, dict):
        raise InputError("a model config must be a JSON object", where=str(file))
    return document
