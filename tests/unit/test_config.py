"""Settings: precedence, origins, and messages about what cannot be used."""

from __future__ import annotations

import pytest

from samestep.config import SETTING_NAMES, Settings, find_settings_file, load_settings
from samestep.errors import ConfigError


def load(folder, flags=None, **environ):
    return load_settings(flags or {}, folder, environ)


def write(folder, text, name="samestep.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_without_anything_all_values_are_defaults(tmp_path):
    settings = load(tmp_path)
    assert settings == Settings()
    assert {settings.origin(name) for name in SETTING_NAMES} == {"default"}


def test_flag_beats_environment_beats_file_beats_default(tmp_path):
    path = write(tmp_path, "# first\nsteps = 1\nverify_steps = 2\njobs = 3\n")
    settings = load(tmp_path, {"steps": 9}, SAMESTEP_STEPS="5", SAMESTEP_VERIFY_STEPS="6")
    assert (settings.steps, settings.verify_steps, settings.jobs, settings.grace_seconds) == (9, 6, 3, 30.0)
    assert settings.origin("steps") == "flag --steps"
    assert settings.origin("verify_steps") == "environment SAMESTEP_VERIFY_STEPS"
    assert settings.origin("jobs") == f"{path}:4"
    assert settings.origin("grace_seconds") == "default"


def test_a_flag_that_was_not_given_leaves_the_file_alone(tmp_path):
    write(tmp_path, 'strict = true\nalso = ["--x 1"]\n')
    settings = load(tmp_path, {"strict": None, "also": ()})
    assert settings.strict
    assert settings.also == ["--x 1"]


def test_a_flag_can_switch_off_what_a_file_switches_on(tmp_path):
    write(tmp_path, "strict = true\n")
    assert not load(tmp_path, {"strict": False}).strict


def test_origin_of_a_renamed_flag_is_the_flag_as_typed(tmp_path):
    assert load(tmp_path, {"grace_seconds": 5.0}).origin("grace_seconds") == "flag --grace"


def test_table_of_pyproject_is_used_and_its_line_is_named(tmp_path):
    path = write(tmp_path, "[project]\nsteps = 1\n\n[tool.samestep]\nsteps = 7\n", "pyproject.toml")
    settings = load(tmp_path)
    assert settings.steps == 7
    assert settings.origin("steps") == f"{path}:5"


def test_pyproject_without_the_table_is_passed_over(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    write(inner, "[project]\n", "pyproject.toml")
    outer = write(tmp_path, "steps = 2\n")
    assert find_settings_file(inner) == outer


def test_samestep_toml_beats_pyproject_beside_it(tmp_path):
    write(tmp_path, "[tool.samestep]\nsteps = 1\n", "pyproject.toml")
    write(tmp_path, "steps = 2\n")
    assert load(tmp_path).steps == 2


def test_the_search_ends_at_the_root_of_the_repository(tmp_path):
    write(tmp_path, "steps = 2\n")
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    assert find_settings_file(repository) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("verify_step = 1\n", "did you mean verify_steps?"),
        ("zzz = 1\n", "samestep config lists the known settings"),
    ],
)
def test_an_unknown_key_is_an_error_with_a_suggestion(tmp_path, text, told):
    path = write(tmp_path, "\n" + text)
    with pytest.raises(ConfigError, match="is no setting") as raised:
        load(tmp_path)
    assert f"{path}:2" in raised.value.message
    assert raised.value.hint == told


@pytest.mark.parametrize(
    "text",
    [
        "steps = -1\n",
        'steps = "many"\n',
        "verify_steps = 0\n",
        "grace_seconds = 0\n",
        "inputs = [1]\n",
        "env = { A = 1 }\n",
    ],
)
def test_a_value_of_the_wrong_kind_names_file_line_and_key(tmp_path, text):
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load(tmp_path)
    assert raised.value.message.startswith(f"{path}:1: {text.split(' ')[0]} is not usable")
    assert raised.value.hint


def test_a_file_that_is_not_toml_is_named(tmp_path):
    path = write(tmp_path, "steps = = 1\n")
    with pytest.raises(ConfigError, match="not valid TOML") as raised:
        load(tmp_path)
    assert str(path) in raised.value.message


@pytest.mark.parametrize("name", ["only", "silence"])
def test_words_that_do_not_exist_are_refused(tmp_path, name):
    write(tmp_path, f'{name} = ["cutt"]\n')
    with pytest.raises(ConfigError, match="does not know 'cutt'"):
        load(tmp_path)


def test_lists_in_the_environment_are_separated_by_commas_or_json(tmp_path):
    settings = load(tmp_path, SAMESTEP_ONLY="cut, damage", SAMESTEP_ALSO='["--a 1,2", "--b"]')
    assert settings.only == ["cut", "damage"]
    assert settings.also == ["--a 1,2", "--b"]


def test_tables_and_switches_in_the_environment(tmp_path):
    settings = load(tmp_path, SAMESTEP_ENV='{"A": "1"}', SAMESTEP_STRICT="true", SAMESTEP_GRACE_SECONDS="2.5")
    assert (settings.env, settings.strict, settings.grace_seconds) == ({"A": "1"}, True, 2.5)


def test_broken_json_in_the_environment_names_the_variable(tmp_path):
    with pytest.raises(ConfigError, match="SAMESTEP_ENV is not valid JSON"):
        load(tmp_path, SAMESTEP_ENV="{")


def test_a_near_miss_in_the_environment_is_an_error(tmp_path):
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, SAMESTEP_GRACE_SECOND="1")
    assert raised.value.hint == "did you mean SAMESTEP_GRACE_SECONDS?"


def test_variables_of_the_machinery_are_no_settings(tmp_path):
    assert load(tmp_path, SAMESTEP_ORDERS="/x", SAMESTEP_DEBUG="1") == Settings()


def test_inputs_in_a_file_are_relative_to_the_file(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    write(tmp_path, 'inputs = ["data", "/abs"]\nwork_dir = "scratch"\n')
    settings = load(inner)
    assert settings.inputs == [str(tmp_path / "data"), "/abs"]
    assert settings.work_dir == str(tmp_path / "scratch")
