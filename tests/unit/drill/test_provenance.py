"""Settings in the provenance: every value with its origin, and no secret."""

from __future__ import annotations

import json
import os

from samestep.cli.drill import drill_options
from samestep.config import SETTING_NAMES, load_settings
from samestep.drill.provenance import provenance


def settings_of(tmp_path, flags=None, environ=None):
    (tmp_path / ".git").mkdir(exist_ok=True)
    (tmp_path / "samestep.toml").write_text('verify_steps = 6\nenv = {HF_TOKEN = "hf_abc"}\n')
    settings = load_settings(flags or {}, tmp_path, environ or {})
    options = drill_options(["python", "train.py"], settings, tmp_path, "")
    return provenance(options)["settings"]


def test_every_setting_is_there_with_its_origin(tmp_path):
    shown = settings_of(tmp_path, {"steps": 24}, {"SAMESTEP_JOBS": "3"})
    assert set(shown) == set(SETTING_NAMES)
    assert shown["steps"] == {"value": 24, "origin": "flag --steps"}
    assert shown["jobs"] == {"value": 3, "origin": "environment SAMESTEP_JOBS"}
    assert shown["verify_steps"] == {"value": 6, "origin": f"{tmp_path}/samestep.toml:1"}
    assert shown["grace_seconds"] == {"value": 30.0, "origin": "default"}


def test_values_hold_no_secret_and_can_be_written(tmp_path):
    flags = {"resume_with": "--resume {checkpoint} --hub_token hf_xyz", "also": ["--api_key k3y --lr 1"]}
    shown = settings_of(tmp_path, flags)
    text = json.dumps(shown)
    assert not any(secret in text for secret in ("hf_abc", "hf_xyz", "k3y"))
    assert shown["env"]["value"] == {"HF_TOKEN": "(set)"}
    assert shown["resume_with"]["value"] == ["--resume", "{checkpoint}", "--hub_token", "***"]
    assert shown["also"]["value"] == [["--api_key", "***", "--lr", "1"]]
    assert os.fspath(tmp_path) in shown["env"]["origin"]
