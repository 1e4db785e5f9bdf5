"""``explain``, ``config`` and ``doctor``."""

from __future__ import annotations

import json
from importlib import metadata

import pytest
from click.testing import CliRunner

from samestep.cli import doctor as doctor_module
from samestep.cli import explain as explain_module
from samestep.cli.config import config
from samestep.cli.doctor import doctor
from samestep.cli.explain import explain
from samestep.config import SETTING_NAMES
from samestep.contract import FINDINGS
from samestep.errors import ConfigError, UsageError


def run(command, *arguments):
    return CliRunner().invoke(command, arguments, catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize("slug", FINDINGS)
def test_explain_prints_the_page_of_every_finding(slug):
    assert run(explain, slug).output.startswith(f"# {slug}\n")


def test_explain_alone_lists_all_findings():
    lines = run(explain).output.splitlines()
    assert [line.split()[0] for line in lines] == list(FINDINGS)


def test_explain_of_an_unknown_slug_names_the_nearest():
    with pytest.raises(UsageError) as raised:
        run(explain, "optimiser-reset")
    assert raised.value.hint == "did you mean optimizer-reset?"


def test_pages_of_a_wheel_come_before_those_of_a_repository(tmp_path, monkeypatch):
    (tmp_path / "rng-not-restored.md").write_text("from the wheel")
    monkeypatch.setattr(explain_module, "PACKAGED_PAGES", tmp_path)
    assert run(explain, "rng-not-restored").output == "from the wheel"


def test_an_installation_without_pages_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(explain_module, "PACKAGED_PAGES", tmp_path)
    monkeypatch.setattr(explain_module, "REPOSITORY_PAGES", tmp_path)
    with pytest.raises(UsageError, match="missing from this installation"):
        run(explain, "rng-not-restored")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_config_shows_every_setting_with_its_origin(here, monkeypatch):
    monkeypatch.setenv("SAMESTEP_STEPS", "12")
    lines = run(config).output.splitlines()
    assert [line.split()[0] for line in lines] == list(SETTING_NAMES)
    assert "steps            12                    environment SAMESTEP_STEPS" in lines


def test_config_as_json_carries_schema_file_and_origins(here):
    (here / "samestep.toml").write_text("jobs = 2\n")
    shown = json.loads(run(config, "--json").output)
    assert shown["schema"] == "samestep.config/1"
    assert shown["file"] == str(here / "samestep.toml")
    assert shown["settings"]["jobs"]["value"] == 2
    assert shown["settings"]["jobs"]["origin"] == f"{here}/samestep.toml:1"
    assert set(shown["settings"]) == set(SETTING_NAMES)


def test_config_refuses_a_file_with_an_unknown_key(here):
    (here / "samestep.toml").write_text("job = 2\n")
    with pytest.raises(ConfigError):
        run(config)


def test_doctor_says_of_every_line_what_it_means(here):
    shown = json.loads(run(doctor, "--json").output)
    assert shown["schema"] == "samestep.doctor/1"
    assert all(check["name"] and check["found"] and check["meaning"] for check in shown["checks"])
    assert {"python", "torch", "cores", "memory", "temporary folder", "results"} <= {
        c["name"] for c in shown["checks"]
    }


def test_doctor_as_text_marks_good_and_bad(here):
    lines = run(doctor).output.splitlines()
    assert {line[:2] for line in lines} <= {"ok", "--"}


def test_doctor_without_torch_says_when_that_is_fine(monkeypatch):
    monkeypatch.setattr(doctor_module, "_version", lambda _: "")
    check = doctor_module._torch()
    assert not check.good
    assert "its own Python" in check.meaning
    assert list(doctor_module._frameworks()) == []


@pytest.mark.parametrize(
    ("version", "good"), [("2.8.1", False), ("2.9.0", True), ("2.13.0+cpu", True), ("3.0", True)]
)
def test_doctor_knows_the_oldest_torch(monkeypatch, version, good):
    monkeypatch.setattr(doctor_module, "_version", lambda _: version)
    assert doctor_module._torch().good is good


def test_doctor_measures_the_disk_of_a_folder_that_is_not_there_yet(tmp_path):
    check = doctor_module._free_disk("results", tmp_path / "a" / "b", "x")
    assert "GiB free" in check.found


def test_a_package_that_is_not_installed_has_no_version():
    assert doctor_module._version("no-such-package-anywhere") == ""
    assert doctor_module._version("click") == metadata.version("click")
