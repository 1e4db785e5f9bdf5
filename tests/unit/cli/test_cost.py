"""``samestep cost``: its verbs, flags, files and exit codes; bad input is named and never ends in a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cost_stores import three_hundred_steps
from samestep.cli.main import cli
from samestep.cost.errors import CostError
from samestep.errors import ExitCode, SamestepError

ROOT = Path(__file__).parents[3]
ENOUGH = [
    "--steps",
    "7200",
    "--step-seconds",
    "1",
    "--save-seconds",
    "20",
    "--restart-seconds",
    "2min",
    "--mean-life",
    "1h",
    "--paths",
    "200",
    "--spot",
    "1",
    "--on-demand",
    "3",
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Work in an empty folder; nothing may be written elsewhere."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words, code=0):
    """Run the verb in this process, where errors of samestep come out as they are."""
    result = CliRunner().invoke(cli, ["cost", *words], standalone_mode=False)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.return_value == code, result.output
    return result


def refused(*words):
    """Return what is said of bad input: the message, and the hint."""
    with pytest.raises((SamestepError, click.ClickException)) as caught:
        run(*words)
    error = caught.value
    if isinstance(error, SamestepError):
        assert error.exit_code is ExitCode.USAGE
        return f"{error.message}; {error.hint}"
    return error.format_message()


def test_the_example_prints_the_numbers_and_leaves_files_that_git_ignores(here):
    text = run("example").output
    assert "30 % less" in text
    assert "14 h" in text
    (folder,) = (here / ".samestep" / "costs").iterdir()
    assert {path.name for path in folder.iterdir()} == {"cost.json", "cost.html"}
    assert (here / ".samestep" / ".gitignore").read_text() == "*\n"


def test_json_is_the_file_that_is_written(here):
    text = run("example", "--json", "--out", "there").output
    assert text == (here / "there" / "cost.json").read_text()
    assert json.loads(text)["choice"] == "spot"


def test_flags_alone_make_a_case():
    answer = json.loads(run(*ENOUGH, "--json").output)
    assert answer["case"]["work"]["steps"] == 7200
    assert answer["case"]["measured"]["restart_seconds"]["value"] == 120
    assert answer["case"]["risk"]["lives"]["mean_seconds"] == 3600
    assert answer["case"]["offers"][0]["spot"] == 1


def test_every_flag_of_a_case_reaches_it():
    more = [
        "--stall-seconds",
        "0.1",
        "--persist-seconds",
        "5",
        "--save-bytes",
        "1e9",
        "--kept-bytes",
        "2e9",
        "--interruptions",
        "20",
        "--observed",
        "20h",
        "--wait",
        "10min",
        "--usable-notice",
        "0.5",
        "--notice-seconds",
        "30",
        "--capacity",
        "greedy",
        "--interval",
        "5min",
        "--deadline",
        "4h",
        "--budget",
        "9",
        "--quality",
        "good",
        "--first-hour",
        "--seed",
        "3",
        "--machines",
        "2",
        "--currency",
        "EUR",
        "--billing",
        "gcp",
        "--storage-month",
        "0.02",
        "--transfer",
        "0.01",
    ]
    case = json.loads(run(*ENOUGH, *more, "--json").output)["case"]
    values = {name: quantity["value"] for name, quantity in case["measured"].items() if name != "schema"}
    assert (
        values["stall_seconds"],
        values["persist_seconds"],
        values["save_bytes"],
        values["kept_bytes"],
    ) == (0.1, 5, 1e9, 2e9)
    assert case["risk"]["lives"] == {
        "model": "exponential",
        "mean_seconds": 3600,
        "interruptions": 20,
        "observed_seconds": 72000,
    }
    assert (
        case["risk"]["wait_seconds"]["value"],
        case["risk"]["usable_notice"],
        case["risk"]["notice_seconds"],
    ) == (600, 0.5, 30)
    assert case["policy"] == {
        "capacity": "greedy",
        "interval_seconds": 300,
        "deadline_seconds": 14400,
        "budget": 9,
        "quality": "good",
        "first_hour": True,
    }
    offer = case["offers"][0]
    assert (
        offer["nodes"],
        offer["currency"],
        offer["billing"],
        offer["storage_month"],
        offer["transfer"],
    ) == (2, "EUR", "gcp", 0.02, 0.01)
    assert case["seed"] == 3


def test_a_flag_goes_over_the_file():
    case = json.loads(
        run(str(ROOT / "examples" / "cost.toml"), "--mean-life", "2h", "--paths", "50", "--json").output
    )["case"]
    assert case["risk"]["lives"]["mean_seconds"] == 7200
    assert case["work"]["steps"] == 72000
    assert case["paths"] == 50


def test_a_mean_life_by_flag_replaces_another_model(here):
    text = (ROOT / "examples" / "cost.toml").read_text()
    risk = text[text.index("[risk]") : text.index("[policy]")]
    (here / "case.toml").write_text(
        text.replace(risk, '[risk]\nmodel = "weibull"\nshape = 0.7\nscale = "2h"\n\n')
    )
    plain = json.loads(run("case.toml", "--paths", "50", "--json").output)
    assert plain["case"]["risk"]["lives"]["model"] == "weibull"
    other = json.loads(run("case.toml", "--mean-life", "2h", "--paths", "50", "--json").output)
    assert other["case"]["risk"]["lives"]["model"] == "exponential"


def test_undecided_is_exit_code_four():
    run(*ENOUGH, "--interruptions", "3", code=ExitCode.INCONCLUSIVE)


def test_the_same_seed_gives_the_same_numbers():
    first, again, other = (json.loads(run(*ENOUGH, "--json", "--seed", seed).output) for seed in "778")
    assert first["offers"] == again["offers"]
    assert first["offers"] != other["offers"]


def test_offers_of_a_file_are_chosen_and_their_quirks_reported():
    table = str(ROOT / "examples" / "offers.csv")
    answer = json.loads(run(*ENOUGH[:-4], "--offers", table, "--instance", "gpu-8", "--json").output)
    assert {one["offer"]["instance"] for one in answer["offers"]} == {"gpu-8"}
    assert any("spot-is-dearer" in note for note in answer["notes"])


def test_import_lists_offers_quirks_and_writes_a_table(here):
    table = str(ROOT / "examples" / "offers.csv")
    text = run("import", table, "--to", "kept.toml").output
    assert "4 offers kept" in text
    assert "taken as offered on demand only" in text
    again = json.loads(run("import", "kept.toml", "--json").output)
    assert len(again["offers"]) == 4
    assert again["schema"] == "samestep.cost-offers/1"


def test_every_odd_row_of_a_large_table_is_written_where_that_is_asked_for(here):
    """More of them than are kept in memory; the answer shows the first."""
    rows = "".join(f"a,x{number},2,1\n" for number in range(1500))
    (here / "offers.csv").write_text("provider,instance,spot,on_demand\n" + rows)
    text = run("import", "offers.csv", "--odd", "odd.csv").output
    assert "1480 odd rows more" in text.replace(",", "") or "1,480 odd rows more" in text
    lines = (here / "odd.csv").read_text().splitlines()
    assert lines[0] == "kind,used,file,row,text"
    assert len(lines) == 1501
    assert lines[-1].startswith("spot-is-dearer,yes,offers.csv,1501,")
    listed = json.loads(run("import", "offers.csv", "--odd", "odd.csv", "--json").output)["quirks"]
    assert len(listed) == 1000
    assert "cannot write" in refused("import", "offers.csv", "--odd", "nowhere/odd.csv")
    before = (here / "offers.csv").read_bytes()
    assert "another file" in refused("import", "offers.csv", "--odd", str(here / "offers.csv"))
    assert (here / "offers.csv").read_bytes() == before


def test_import_of_nothing_wanted_is_exit_code_five():
    run("import", str(ROOT / "examples" / "offers.csv"), "--instance", "none", code=ExitCode.NOTHING_RAN)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["predict"], "nothing says what to reckon with"),
        (["nowhere.toml"], "cannot read nowhere.toml"),
        (["exmaple"], "did you mean example"),
        ([*ENOUGH, "--spot", "-1"], "negative"),
        ([*ENOUGH, "--spot", "nan"], "finite"),
        ([*ENOUGH, "--usable-notice", "80"], "0.8"),
        ([*ENOUGH, "--billing", "per-secnd"], "per-second"),
        ([*ENOUGH, "--capacity", "greedy"], "--deadline"),
        ([*ENOUGH, "--step-seconds", "soon"], "no duration"),
        ([*ENOUGH, "--paths", "0"], "at least 1"),
        ([*ENOUGH, "--currency", "dollars"], "currency"),
        ([*ENOUGH[:-4], "--transfer", "1"], "--transfer says nothing"),
        (ENOUGH[2:], "how much is to be done"),
        ([*ENOUGH[:4], *ENOUGH[-4:], "--mean-life", "1h"], "--save-seconds"),
        ([*ENOUGH[:8], *ENOUGH[-4:]], "--mean-life"),
        ([*ENOUGH, "--measured", "nowhere.json"], "nowhere.json"),
        ([*ENOUGH, "--drill", "nowhere.json"], "nowhere.json"),
        ([*ENOUGH, "--offers", "nowhere.csv"], "nowhere.csv"),
        (["import", "nowhere.csv"], "nowhere.csv"),
        (["actual", "nowhere", "--transfer", "1"], "no price"),
        (["actual", "nowhere", "--spot", "-2"], "negative"),
        (["actual", "nowhere", "--spot", "1", "--machines", "0"], "at least 1"),
        (["actual", "nowhere", "--spot", "1", "--currency", "euro"], "a currency such as"),
    ],
    ids=lambda value: "-".join(value[-2:]) if isinstance(value, list) else None,
)
def test_bad_input_is_named(words, said):
    assert said in refused(*words)


@pytest.fixture
def lost_sixty(here):
    three_hundred_steps(here / "run")
    return "run"


def test_actual_takes_the_one_offer_of_a_file_that_is_meant(here, lost_sixty):
    (here / "offers.csv").write_text(
        "provider,instance,zone,spot,on_demand\na,x,one,3.6,7.2\na,x,two,1,2\na,y,one,1,0\n"
    )
    meant = ["actual", lost_sixty, "--offers", "offers.csv", "--instance", "x", "--zone", "one", "--json"]
    found = json.loads(run(*meant).output)
    by_hand = json.loads(run("actual", lost_sixty, "--spot", "3.6", "--on-demand", "7.2", "--json").output)
    assert found["money"] == by_hand["money"]
    several = refused("actual", lost_sixty, "--offers", "offers.csv", "--instance", "x")
    assert "2 are meant: a x one, a x two" in several
    assert "--zone" in several
    assert "2 are meant: a x one, your offer" in refused(*meant[:-1], "--spot", "1")
    assert "no offer of the files is meant" in refused(*meant[:-1], "--region", "south")


def test_actual_says_what_is_odd_about_the_offer_it_takes(here, lost_sixty):
    (here / "offers.csv").write_text("provider,instance,spot,on_demand\na,x,3,2\n")
    assert "spot-is-dearer" in run("actual", lost_sixty, "--offers", "offers.csv").output


def test_the_first_hour_means_the_same_in_a_prediction_and_in_an_account(lost_sixty):
    """The first attempt was taken away within its first hour: 317 s that are not billed."""
    paid = ["--spot", "3.6", "--billing", "aws-linux"]
    plain, free = (
        json.loads(run("actual", lost_sixty, *paid, *switch, "--json").output)
        for switch in ([], ["--first-hour"])
    )
    assert plain["billed_seconds"] - free["billed_seconds"] == pytest.approx(317)
    words = ["--run", lost_sixty, *ENOUGH[:-4], *paid, "--first-hour", "--json"]
    assert json.loads(run(*words, code=ExitCode.INCONCLUSIVE).output)["actual"]["money"] == free["money"]


def test_mixed_currencies_are_refused(here):
    (here / "offers.csv").write_text("provider,instance,spot,on_demand,currency\na,x,1,2,USD\nb,x,1,2,EUR\n")
    assert "currencies" in refused(*ENOUGH[:-4], "--offers", "offers.csv")


def test_an_unknown_key_names_the_nearest_one(here):
    text = (ROOT / "examples" / "cost.toml").read_text()
    (here / "case.toml").write_text(text.replace("deadline =", "dedline ="))
    said = refused("case.toml")
    assert "policy.dedline" in said
    assert "did you mean deadline" in said


def test_what_is_wrong_stands_at_its_line_or_on_the_command_line(here):
    text = (ROOT / "examples" / "cost.toml").read_text()
    (here / "case.toml").write_text(text.replace('wait = "20min"', 'wait = "soon"'))
    line = 1 + text[: text.index('wait = "20min"')].count("\n")
    assert f"case.toml:{line}: risk.wait" in refused("case.toml")
    (here / "case.toml").write_text(text)
    assert "command line: risk.usable_notice is" in refused("case.toml", "--usable-notice", "2")
    assert "command line: offers[3].spot is" in refused("case.toml", "--spot", "-1")


@pytest.mark.parametrize(
    ("said", "flag"),
    [("work = 3", ["--steps", "5"]), ("risk = 3", ["--mean-life", "4h"]), ("offers = 3", ["--spot", "1"])],
    ids=["work", "risk", "offers"],
)
def test_a_flag_over_what_is_no_table_ends_in_a_message(here, said, flag):
    (here / "case.toml").write_text(said)
    rest = ["--step-seconds", "1", "--save-seconds", "1", "--restart-seconds", "1"]
    steps = [] if said.startswith("work") else ["--steps", "5"]
    life = [] if said.startswith("risk") else ["--mean-life", "4h"]
    assert said.split()[0] + " is" in refused("case.toml", *rest, *steps, *life, *flag)


def test_hostile_files_end_in_a_message(here):
    for name, content in {
        "empty.toml": b"",
        "bytes.toml": bytes(range(256)),
        "deep.toml": b"a = " + b"[" * 5000 + b"]" * 5000,
        "offers.csv": b"\x00\xff,1\n",
        "list.json": b"[1, 2",
    }.items():
        (here / name).write_bytes(content)
        verb = ["import"] if name.startswith(("offers", "list")) else []
        with pytest.raises(CostError):
            run(*verb, name)


def test_a_folder_that_cannot_be_written_is_named(here):
    (here / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        run("example", "--out", "file/there")


def test_without_scipy_it_says_what_to_install(monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "scipy" else found(name))
    assert 'pip install "samestep[cost]"' in refused("example")


def test_the_real_command_ends_with_the_promised_codes(here):
    """One process: what the in-process tests cannot show is the code that a shell sees."""
    command = [sys.executable, "-m", "samestep", "cost", "nowhere.toml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.USAGE
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
