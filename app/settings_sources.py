"""Where values of settings come from, beside flags and defaults: variables and the YAML file.

Each source describes where its values come from, so that a message can name the source of a bad value.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic_settings import BaseSettings, EnvSettingsSource, InitSettingsSource


class EnvironSource(EnvSettingsSource):
    """Environment variables; only upper-case names count."""

    def __init__(self, settings_cls: type[BaseSettings], environ: Mapping[str, str]) -> None:
        self._environ = environ
        super().__init__(settings_cls)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        """Return the values by the library's spelling of the names, in lower case."""
        return {name.lower(): value for name, value in self._environ.items() if name == name.upper()}

    def origin(self, name: str) -> str:
        """Return the source of a setting's value, for messages."""
        return f"variable {self.env_prefix}{name.upper()}"


class FileSource(InitSettingsSource):
    """The keys of a YAML file. `problems` has a line for each error in the file; nothing raises."""

    def __init__(self, settings_cls: type[BaseSettings], path: Path | None, spellings: Mapping[str, str]) -> None:
        """Read the file, if there is one. `spellings`: names of settings by the keys that mean them."""
        self.problems: list[str] = []
        self._path = path
        content = self._read(path) if path is not None else {}
        self.problems += [f'file {path}: unknown key "{key}"' for key in content if key not in spellings]
        self._keys = {spellings[key]: key for key in content if key in spellings}
        super().__init__(settings_cls, {name: content[key] for name, key in self._keys.items()})

    def _read(self, path: Path) -> Mapping[Any, Any]:
        try:
            content = yaml.safe_load(path.read_text())
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            problem = f"is not valid YAML: {str(error).splitlines()[0]}"
        else:
            if content is None or isinstance(content, dict):
                return content or {}
            problem = "must hold keys and values"
        self.problems.append(f"file {path}: {problem}")
        return {}

    def origin(self, name: str) -> str:
        """Return the source of a setting's value, for messages."""
        return f'file {self._path}, key "{self._keys[name]}"'


Sources = tuple[EnvironSource | FileSource, ...]
"""Sources below the flags; the first with a value wins."""
