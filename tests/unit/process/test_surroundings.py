from pathlib import Path

from samestep.process.surroundings import OFFLINE_VARIABLES, environment

SEAT = Path("/base/seat")


def test_home_temporary_folder_and_caches_are_those_of_the_machine():
    env = environment({"HOME": "/home/ada", "TMPDIR": "/scratch", "XDG_CACHE_HOME": "/home/ada/.c"}, SEAT)
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TRITON_CACHE_DIR"):
        assert Path(env[name]).is_relative_to(SEAT), name


def test_the_rest_of_the_environment_is_untouched():
    env = environment({"PATH": "/usr/bin", "CUDA_VISIBLE_DEVICES": "1", "OLDPWD": "/x"}, SEAT)
    assert (env["PATH"], env["CUDA_VISIBLE_DEVICES"], env["PWD"]) == ("/usr/bin", "1", "/base/seat/project")
    assert "OLDPWD" not in env


def test_trackers_and_hubs_are_out_of_reach_unless_allowed():
    base = {"WANDB_MODE": "online"}
    assert environment(base, SEAT)["WANDB_MODE"] == "offline"
    assert environment(base, SEAT)["MLFLOW_TRACKING_URI"] == "file:///base/seat/tmp/mlruns"
    assert OFFLINE_VARIABLES.keys() <= environment(base, SEAT).keys()
    allowed = environment(base, SEAT, offline=False)
    assert allowed["WANDB_MODE"] == "online"
    assert "HF_HUB_OFFLINE" not in allowed


def test_a_cache_declared_as_input_stays_the_users():
    base = {"HOME": "/home/ada", "HF_HUB_CACHE": "/models/hub", "HF_DATASETS_CACHE": "/elsewhere"}
    env = environment(base, SEAT, inputs=[Path("/home/ada/.cache/huggingface/hub"), Path("/models")])
    assert env["HF_HOME"] == "/home/ada/.cache/huggingface"
    assert env["HF_HUB_CACHE"] == "/models/hub"
    assert "HF_DATASETS_CACHE" not in env
    assert env["TORCH_HOME"] == "/base/seat/cache/torch"
