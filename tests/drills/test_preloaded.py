"""A process forked from a preloaded one becomes the script just as a fresh process does."""

import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest

from samestep import probe
from samestep.drill.preloading import sort_modules
from samestep.errors import ForkError, MachineError
from samestep.process import Preloaded, ProcessTree, PythonCommand, Site
from samestep.process.isolation import probe_isolation

PATIENCE_SECONDS = 60.0

pytestmark = pytest.mark.skipif(probe_isolation().mode != "namespace", reason="no mount namespaces here")

SCRIPTS = {
    "facts": """
        import os, sys, threading
        main = sys.modules["__main__"]
        print(__name__, __file__, main.__file__, main is not None, sys.argv, sys.path[:2], os.getcwd())
        print(sorted(name for name in vars(main) if name.startswith("__")))
        print(os.environ.get("COLOUR"), os.environ.get("HOME"), os.environ.get("TMPDIR"), sys.orig_argv[1:])
        print(threading.active_count(), threading.current_thread() is threading.main_thread())
        print([sys.stdin.read(), sys.stdout.isatty(), sys.stdout.line_buffering])
        sys.stderr.write("to stderr\\n")
    """,
    "signals": """
        import signal
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD, signal.SIGHUP):
            print(number, signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN), signal.getsignal(number))
        print(signal.set_wakeup_fd(-1))
    """,
    "descriptors": """
        import os
        print([os.readlink(f"/proc/self/fd/{n}").split("/")[-1].partition("-")[2] for n in range(3)])
        print(sorted(n for n in map(int, os.listdir("/proc/self/fd")) if n > 3))
    """,
    "left-open": """
        import atexit
        log = open("left.txt", "w")
        log.write("not flushed")
        atexit.register(lambda: print("later", open("left.txt").read()))
        class Late:
            def __init__(self): self.text = open("late.txt", "w")
        late = Late()
        late.text.write("held by an object")
    """,
    "raises": """
        import atexit
        atexit.register(print, "at exit")
        def deeper():
            raise ValueError("no such state")
        deeper()
    """,
    "raises-from": """
        try:
            {}["key"]
        except KeyError as error:
            raise RuntimeError("wrapped") from error
    """,
    "syntax-error": "def broken(:\n",
    "exits": "import sys; print('leaving'); sys.exit(3)",
    "exits-with-text": "raise SystemExit('said why')",
    "leaves-at-once": "import os, sys; sys.stdout.write('x'); sys.stdout.flush(); os._exit(7)",
    "interrupted": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "thread": """
        import threading, time
        threading.Thread(target=lambda: (time.sleep(0.3), print("joined"))).start()
    """,
    "spawns": """
        import multiprocessing
        def work(value):
            return value + 1
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [1, 2]))
    """,
    "frames": """
        import sys
        frame, strangers = sys._getframe(), 0
        while frame is not None:
            strangers += frame.f_globals["__name__"] == "__main__" and frame.f_globals is not globals()
            frame = frame.f_back
        print("frames of another main program:", strangers)
    """,
    "pickles": """
        import pickle
        class Thing:
            pass
        print(type(pickle.loads(pickle.dumps(Thing()))).__module__)
    """,
    "imports-beside-it": "import beside; print(beside.VALUE, beside.__file__)",
    "torch-generator": "import torch; torch.manual_seed(1); print(torch.rand(2), torch.get_num_threads())",
    "loader-workers": """
        import torch
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, index): return torch.tensor(index)
        if __name__ == "__main__":
            print(list(torch.utils.data.DataLoader(Data(), num_workers=2, batch_size=2)))
    """,
}
MODULES = ["torch", "numpy", "numpy.random", "json", "no_such_library"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    project = tmp_path_factory.mktemp("project")
    (project / "package").mkdir()
    (project / "package" / "__init__.py").write_text("print('package is imported')\n")
    (project / "beside.py").write_text("VALUE = 5\n")
    for name, text in SCRIPTS.items():
        (project / f"{name}.py").write_text(textwrap.dedent(text))
        (project / "package" / f"{name.replace('-', '_')}.py").write_text(textwrap.dedent(text))
    with Site.create(project) as made:
        yield made


def surroundings(machine):
    return {**machine.environment(os.environ), "OMP_NUM_THREADS": "1", "COLOUR": "green"}


def preload(site, command, name="preloaded", **changes):
    machine = site.machine(name)
    arguments = {"machine": machine, "env": surroundings(machine), "log_path": site.base / f"{name}.log"}
    return Preloaded.start(PythonCommand.parse(command), MODULES, **arguments, **changes)


@pytest.fixture(scope="module")
def preloaded(site):
    with preload(site, [sys.executable, "facts.py"]) as process:
        yield process


def start(site, name, argv, preloaded=None):
    machine = site.machine(name)
    log = site.base / f"{name}.log"
    return machine, ProcessTree.start(
        argv,
        env=surroundings(machine),
        cwd=machine.seat_project,
        log_path=log,
        enter=machine.enter,
        preloaded=preloaded,
    )


def outcome(site, name, argv, preloaded=None):
    """Exit code and output of a command on a fresh machine."""
    machine, tree = start(site, name, argv, preloaded)
    with tree:
        code = tree.wait(PATIENCE_SECONDS)
    machine.destroy()
    return code, (site.base / f"{name}.log").read_text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_forked_script_behaves_as_a_fresh_one(site, preloaded, name):
    argv = [sys.executable, f"{name}.py", "--rate", "0.5"]
    fresh = outcome(site, f"fresh-{name}", argv)
    assert outcome(site, f"forked-{name}", argv, preloaded) == fresh


def test_a_file_that_a_forked_script_left_open_is_written_out(site, preloaded):
    machine, tree = start(site, "left-open", [sys.executable, "left-open.py"], preloaded)
    with tree:
        assert tree.wait(PATIENCE_SECONDS) == 0
    written = [(machine.folder / "project" / name).read_text() for name in ("left.txt", "late.txt")]
    machine.destroy()
    assert written == ["not flushed", "held by an object"]


@pytest.mark.parametrize("name", ["facts", "exits", "raises"])
def test_a_forked_module_behaves_as_a_fresh_one(site, preloaded, name):
    argv = [sys.executable, "-m", f"package.{name}", "x"]
    fresh_code, fresh = outcome(site, f"fresh-module-{name}", argv)
    code, forked = outcome(site, f"forked-module-{name}", argv, preloaded)
    assert code == fresh_code
    assert without_runpy(forked) == without_runpy(fresh)


def without_runpy(text):
    return [
        line
        for line in text.splitlines()
        if "runpy" not in line and "_run_" not in line and "^^^" not in line
    ]


def test_forks_draw_their_own_unseeded_random_numbers(site, preloaded):
    script = site.project / "draws.py"
    script.write_text(
        "import random, numpy, torch\n"
        "print(random.random(), numpy.random.rand(), torch.rand(1).item(), sep='\\n')\n"
    )
    runs = [outcome(site, f"draws-{n}", [sys.executable, "draws.py"], preloaded) for n in range(3)]
    numbers = [number for _, text in runs for number in text.split()]
    assert len(set(numbers)) == len(numbers) == 9


def test_a_fork_is_killed_with_everything_it_started_and_the_others_live_on(site, preloaded):
    script = site.project / "family.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'], start_new_session=True)\n"
        "print('ready', flush=True); time.sleep(100)\n"
    )
    trees = [start(site, f"family-{n}", [sys.executable, "family.py"], preloaded)[1] for n in range(2)]
    try:
        for tree in trees:
            wait_until(lambda tree=tree: "ready" in tree.log_path.read_text())
        trees[0].freeze()
        trees[0].kill()
        assert trees[0].members() == []
        assert trees[0].poll() == 128 + signal.SIGKILL
        assert len(trees[1].members()) == 2
    finally:
        for tree in trees:
            tree.kill()


def test_ending_the_preloaded_process_ends_its_forks(site):
    process = preload(site, [sys.executable, "facts.py"], "to-be-closed")
    (site.project / "sleeps.py").write_text("import time; print('ready', flush=True); time.sleep(100)\n")
    _, tree = start(site, "sleeper", [sys.executable, "sleeps.py"], process)
    with tree:
        wait_until(lambda: "ready" in tree.log_path.read_text())
        process.close()
        assert tree.wait_gone(PATIENCE_SECONDS)
    with pytest.raises(ForkError, match="preloaded process is gone"):  # whoever asked for it may do without
        start(site, "too-late", [sys.executable, "sleeps.py"], process)


def test_a_project_module_with_the_name_of_a_librarys_is_refused(site):
    with pytest.raises(MachineError, match="own module json"):
        preload(site, [sys.executable, "facts.py"], "shadowed", local=["json"])


def test_a_library_that_starts_a_thread_is_refused(site, monkeypatch, tmp_path):
    (tmp_path / "busy_library.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True, name='busy').start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    machine = site.machine("busy")
    with pytest.raises(MachineError, match="started the thread busy"):
        Preloaded.start(
            PythonCommand.parse([sys.executable, "facts.py"]),
            ["busy_library"],
            machine=machine,
            env=machine.environment(os.environ),
            log_path=tmp_path / "log",
        )


def test_what_a_library_prints_when_it_is_imported_is_not_in_the_log_of_every_fork(
    site, monkeypatch, tmp_path
):
    (tmp_path / "chatty_library.py").write_text("print('imported once')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    machine = site.machine("chatty")
    with Preloaded.start(
        PythonCommand.parse([sys.executable, "facts.py"]),
        ["chatty_library"],
        machine=machine,
        env=machine.environment(os.environ),
        log_path=tmp_path / "log",
    ) as process:
        code, output = outcome(site, "of-chatty", [sys.executable, "facts.py"], process)
    assert code == 0
    assert "imported once" not in output
    assert (tmp_path / "log").read_text() == "imported once\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "-c", "pass"],
        ["python", "-I", "train.py"],
        ["python", "-m", "torch.distributed.run", "train.py"],
        ["python", "-m"],
        ["torchrun", "train.py"],
        ["bash", "train.sh"],
        ["python"],
        [],
    ],
)
def test_only_a_plain_start_of_a_python_program_can_be_forked(argv):
    assert PythonCommand.parse(argv) is None


def test_flags_of_the_interpreter_are_told_from_the_programs_own(preloaded):
    command = PythonCommand.parse(["/env/bin/python3.12", "-u", "-X", "dev", "train.py", "-m", "-O"])
    assert command.flags == ("-u", "-X", "dev")
    assert command.arguments == ("train.py", "-m", "-O")
    assert preloaded.runs([sys.executable, "other.py"])
    assert not preloaded.runs([sys.executable, "-O", "other.py"])


def test_modules_of_the_project_are_told_from_those_of_libraries():
    listed = [
        ("sys", "built-in"),
        ("numpy", "/env/lib/python3.12/site-packages/numpy/__init__.py"),
        ("mine", "/seat/project/mine/__init__.py"),
        ("mine.loop", "/seat/project/mine/loop.py"),
        ("json", "/usr/lib/python3.12/json/__init__.py"),
        ("torch", "/seat/project/.venv/lib/python3.12/site-packages/torch/__init__.py"),
        ("_samestep.probe", "/elsewhere/samestep/probe/__init__.py"),
    ]
    libraries, local = sort_modules(listed, [Path("/seat")])
    assert libraries == ["numpy", "json", "torch"]
    assert local == ["mine"]


def test_the_probe_is_no_module_of_the_project_that_holds_samestep_itself():
    own = str(probe.site_folder() / "sitecustomize.py")
    repository = Path(probe.__file__).parents[3]
    listed = [("sitecustomize", own), ("numpy", "/env/lib/python3.12/site-packages/numpy/__init__.py")]
    assert sort_modules(listed, [repository]) == (["numpy"], [])


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)
