"""The one seam between the command line and the server: `render` reads the server's settings file.

Nothing else of `cli` may import from `app`; the import contract of the rooms names this file as its exception.
"""

from __future__ import annotations

from pathlib import Path

from app.settings import SettingsError, load_settings
from reconcile.settings import ReconcileSettings


class SettingsFileError(ValueError):
    """A settings file cannot be used; `lines` say why, one problem each."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def read_reconcile_settings(file: Path) -> ReconcileSettings:
    """Return the controllers' settings from a settings file of the server. Raises: SettingsFileError.

    The environment of this shell is not the server's, so its variables are not read.
    """
    try:
        settings, _ = load_settings({}, config=file, environ={})
    except SettingsError as error:
        raise SettingsFileError(error.lines) from None
    return settings.reconcile_settings()
