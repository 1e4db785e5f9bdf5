"""``samestep config``: every setting, its value, and where that came from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from samestep import __version__
from samestep.config import SETTING_NAMES, Settings, describe_setting, find_settings_file, load_settings

CONFIG_SCHEMA = "samestep.config/1"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def config(*, as_json: bool) -> None:
    """Show every setting and where its value came from.

    A flag beats an environment variable SAMESTEP_NAME, which beats samestep.toml or [tool.samestep] in
    pyproject.toml, which beats the default.
    """
    here = Path.cwd()
    settings = load_settings({}, here, os.environ)
    if as_json:
        click.echo(json.dumps(_plain(settings, find_settings_file(here)), indent=2))
        return
    width = max(map(len, SETTING_NAMES))
    for name in SETTING_NAMES:
        value = json.dumps(getattr(settings, name))
        click.echo(f"{name:{width}}  {value:20}  {click.style(settings.origin(name), dim=True)}")


def _plain(settings: Settings, file: Path | None) -> dict[str, Any]:
    rows = {
        name: {
            "value": getattr(settings, name),
            "origin": settings.origin(name),
            "description": describe_setting(name),
        }
        for name in SETTING_NAMES
    }
    return {
        "schema": CONFIG_SCHEMA,
        "version": __version__,
        "file": str(file) if file else None,
        "settings": rows,
    }
