"""A whole drill: controls, criterion, plan, scenarios, verdict."""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import msgspec

from samestep.checkpoints import FRAMEWORKS, framework_hint
from samestep.contract import Family, Outcome
from samestep.contract.redaction import redacted, redacted_text
from samestep.crash.models import COMPOUND
from samestep.drill.artefacts import tensor_content
from samestep.drill.command import check_command, replay_command
from samestep.drill.continuing import carry_over, content_digest, fingerprint, reusable
from samestep.drill.control import never_saved, run_first_control, run_reference, run_unwatched
from samestep.drill.crashing import prepare
from samestep.drill.execute import run_scenario, silence
from samestep.drill.ground import Ground, Workshop
from samestep.drill.inventory import inventory, not_checked
from samestep.drill.judging import criterion as criteria
from samestep.drill.judging.diagnosis.records import finding
from samestep.drill.plan import Planner, choose
from samestep.drill.preloading import Forks, can_fork
from samestep.drill.provenance import provenance
from samestep.drill.recording import choose_recorder
from samestep.drill.recovering import second_interruption
from samestep.drill.result import Control, DrillResult, Save, ScenarioResult
from samestep.drill.series import series_of
from samestep.drill.units import units_with_steps
from samestep.drill.verdict import exit_code_of, not_carried_out, outcome_of, watching_proof
from samestep.errors import ExitCode, UsageError
from samestep.process import Site, kill_all_trees

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from samestep.drill.crashing import Crashes
    from samestep.drill.ground import ControlRun
    from samestep.drill.options import DrillOptions
    from samestep.drill.result import CrashRecord, Criterion
    from samestep.drill.scenario import Scenario

SABOTAGES = ("optimizer", "schedule", "data", "rng")


class Listener(Protocol):
    """What a drill tells while it runs."""

    def phase(self, text: str) -> None:
        """A part of the work begins."""

    def control(self, control: Control, criterion: Criterion) -> None:
        """The controls are done and the criterion is fixed."""

    def recorded(self, record: CrashRecord) -> None:
        """The saves of the control are taken apart, for the family ``crash``."""

    def planned(self, titles: list[str]) -> None:
        """The plan is written: scenarios with these titles follow."""

    def running(self, name: str) -> None:
        """A scenario begins."""

    def scenario(self, result: ScenarioResult) -> None:
        """A scenario is done; scenarios are told in the order of the plan."""


class Drill:
    """One drill of one command.

    Args:
        options: what to do.
        listener: told about progress.
        version: of samestep, for the record.
    """

    def __init__(self, options: DrillOptions, listener: Listener, version: str) -> None:
        self.options = options
        self.listener = listener
        self._interruption = ExitCode.INTERRUPTED
        self._not_followed: list[str] = []
        self._recorder = ""
        self._known: dict[str, ScenarioResult] = {}
        self.result = DrillResult(
            version=version,
            run_id=options.run_folder.name,
            outcome=Outcome.INCONCLUSIVE,
            exit_code=int(ExitCode.NOTHING_RAN),
            command=redacted(options.command),
            resume_with=redacted(options.resume_with),
            started_unix=time.time(),
        )

    def run(self) -> DrillResult:
        """Run the drill to its verdict.

        An interruption (Ctrl-C) ends every process and returns what is there, marked ``interrupted``.

        Raises:
            UsageError, DrillError, MachineError: it cannot be carried out.
        """
        check_command(self.options)
        started = time.monotonic()
        self.result.provenance = provenance(self.options)
        try:
            with Site.create(
                self.options.project,
                self.options.work_dir,
                durable=self.options.durable or None,
                inputs=self.options.inputs,
                keep=self.options.project_files,
                writable=[self.options.run_folder],
                offline=not self.options.allow_network,
            ) as site:
                self._drill(Workshop(self.options, site, site.base / "snapshots"))
        except KeyboardInterrupt as interrupt:
            kill_all_trees()
            self.result.interrupted = True
            self._interruption = getattr(interrupt, "exit_code", ExitCode.INTERRUPTED)
            if self.options.earlier is not None:
                carry_over(self.options.earlier, self.result)
        self.result.seconds = time.monotonic() - started
        self._conclude()
        return self.result

    def _drill(self, workshop: Workshop) -> None:
        self.result.provenance |= {
            "jobs": workshop.jobs,
            "attempt_environment": workshop.threads | dict.fromkeys(self.options.env, "(set)"),
        }
        self.listener.phase("control: first run, and one that nobody watches")
        first, unwatched = self._first_control(workshop)
        if not first.facts.save_steps:
            self.result.findings.append(never_saved(first))
            return
        self._recorder = self._choose_recorder(first.facts.ranks)
        with contextlib.closing(Forks(workshop, first, self.listener.phase)) as forks:
            if self._recorder:
                forks.prepare(self.options.max_states)
            try:
                self._judge_restarts(workshop, first, unwatched, forks)
            except KeyboardInterrupt:
                open_ones = forks.unconfirmed()
                self.result.scenarios = [item for item in self.result.scenarios if item.name not in open_ones]
                raise

    def _judge_restarts(
        self, workshop: Workshop, first: ControlRun, unwatched: dict[str, str], forks: Forks
    ) -> None:
        planner = Planner(first.facts, self.options)
        self.listener.phase("control: second run")
        second = self._second_control(workshop, planner, first)
        criterion = criteria.derive(first.record.traces, second.record.traces)
        ground = Ground(workshop, second, first, criterion)
        self.result.provenance["versions"] = second.record.traces[0].header.versions
        self.result.fingerprint = fingerprint(workshop.code_digest(), self.result.provenance)
        self._not_followed += second.record.ending.not_followed
        if self._recorder:
            ground = replace(ground, crashes=self._prepare_crashes(ground, planner))
        self.result.criterion = criterion
        self.result.control = self._control(ground, unwatched)
        if self.options.earlier is not None:
            self._known = reusable(self.options.earlier, self.result)
            self.listener.phase(f"going on with {len(self._known)} results of the interrupted drill")
        if self.result.control.watching_proven is False:
            self.result.findings.append(finding("watching-changes-run", self.result.control.watching))
        if second.facts.save_steps != first.facts.save_steps:
            evidence = (
                f"saves after steps {second.facts.save_steps}, in the first run {first.facts.save_steps}"
            )
            self.result.findings.append(finding("noisy-control", evidence))
        noisy = criteria.too_noisy(criterion, first.record.traces, second.record.traces)
        if noisy is not None:
            self.result.findings.append(noisy)
            self.listener.control(self.result.control, criterion)
            return
        possible = self._plan(ground, planner)
        scenarios = self._chosen(possible)
        self._check_sensitivity(ground, possible)
        self.listener.control(self.result.control, criterion)
        self._write_plan(scenarios)
        if self.result.crash is not None:
            self.listener.recorded(self.result.crash)
        self.listener.planned([scenario.title for scenario in scenarios])
        closed = contextlib.nullcontext() if ground.crashes is None else contextlib.closing(ground.crashes)
        with closed:
            forks.prepare(sum(map(can_fork, scenarios)))
            for result in self._run_all(ground, scenarios, forks):
                result.replay = replay_command(self.options, result.name)
                self.result.scenarios.append(result)
                self.listener.scenario(result)
        self._shared_inputs(workshop)
        self._hint_resume(first)
        self.result.inventory = inventory(ground, self.result.scenarios)

    # Controls.

    def _first_control(self, workshop: Workshop) -> tuple[ControlRun, dict[str, str]]:
        """Run the first control beside the run that nobody watches; where one at a time must do, before it."""
        with self._pool(workshop) as pool:
            first = pool.submit(run_first_control, workshop)
            unwatched = pool.submit(run_unwatched, workshop)
            return first.result(), unwatched.result()

    def _second_control(self, workshop: Workshop, planner: Planner, first: ControlRun) -> ControlRun:
        points, facts = planner.park_points(), first.facts
        return run_reference(workshop, points, facts.ranks, facts.steps, recorder=self._recorder)

    def _control(self, ground: Ground, unwatched: dict[str, str]) -> Control:
        facts = ground.control.facts
        watched = tensor_content(ground.other.final)
        content = content_digest(tensor_content(ground.control.final))
        differing = criteria.differing(ground.other.record.traces, ground.control.record.traces)
        proven, how = watching_proof(watched, unwatched, exact=ground.exact, limited=bool(self.options.steps))
        return Control(
            runs=2,
            steps=facts.steps,
            save_steps=facts.save_steps,
            bit_equal=ground.exact,
            tolerances=ground.criterion.tolerances,
            differing=differing,
            saves=[Save(step=burst.step, units=list(burst.paths)) for burst in facts.bursts],
            watching_proven=proven,
            watching=how,
            epoch_ends=facts.epoch_ends,
            accumulation=facts.accumulation,
            ranks=facts.ranks,
            content=content,
            seconds=ground.control.record.seconds,
            series=[series_of(trace, 0) for trace in ground.control.record.traces],
        )

    def _shared_inputs(self, workshop: Workshop) -> None:
        """A write into a shared input by one machine is seen by the next: it leans on what will be lost."""
        changed = workshop.site.changed_inputs()
        if changed:
            evidence = f"read-only inputs were written: {', '.join(changed[:3])}"
            self.result.findings.append(finding("leaned-on-lost-machine", evidence))

    def _choose_recorder(self, ranks: int) -> str:
        """Return how saves are recorded; nothing where the family is not wanted."""
        if not self.options.wants(Family.CRASH) or not self.options.max_states:
            return ""
        recorder, left_open = choose_recorder(ranks)
        self._not_followed += [f"interrupted saves: {left_open}"] if left_open else []
        return recorder

    def _prepare_crashes(self, ground: Ground, planner: Planner) -> Crashes | None:
        """Take the recorded saves apart; a recording that does not explain what is on disk proves nothing."""
        crashes = prepare(ground.workshop, ground.control, planner.damaged_save())
        self.result.crash = crashes.record
        if crashes.record.proven and crashes.saves:
            if COMPOUND in crashes.record.models and (again := second_interruption(ground, crashes)):
                crashes.add(again)
            return crashes
        notes = "; ".join(crashes.record.notes[:3]) or "no save of a checkpoint is in it"
        self.result.findings.append(finding("recording-unproven", notes))
        return None

    # The plan.

    def _plan(self, ground: Ground, planner: Planner) -> list[Scenario]:
        point = planner.damage_point()
        bursts = [burst for burst in ground.control.facts.bursts if burst.step <= point.step]
        units = units_with_steps(ground.workshop.snapshot(point.name), bursts)
        reference = Planner(planner.facts, self.options, ground.control.facts.save_steps)
        return [*reference.scenarios({point.name: units}), *self._crash_scenarios(ground, reference)]

    def _crash_scenarios(self, ground: Ground, planner: Planner) -> list[Scenario]:
        if ground.crashes is None:
            return []
        states = ground.crashes.chosen(self.options.max_states, self.options.replay)
        scenarios = ground.crashes.scenarios(states, planner.verify)
        return [*scenarios, *ground.crashes.fault_scenarios()] if self.options.max_states else scenarios

    def _chosen(self, scenarios: Sequence[Scenario]) -> list[Scenario]:
        chosen = choose(scenarios, self.options)
        if self.options.replay and not chosen:
            raise UsageError(
                f"no scenario is called {self.options.replay!r}",
                hint="known: " + ", ".join(scenario.name for scenario in scenarios),
            )
        return chosen

    def _check_sensitivity(self, ground: Ground, scenarios: Sequence[Scenario]) -> None:
        """Sabotage a resume in every known way and see whether the criterion notices."""
        base = next((item for item in scenarios if item.name == "cut/after-save"), None)
        if ground.exact or base is None:
            return
        self.listener.phase("criterion: sabotaged resumes")
        with self._pool(ground.workshop) as pool:
            futures = {name: pool.submit(run_scenario, ground, base, sabotage=name) for name in SABOTAGES}
            results = {name: future.result() for name, future in futures.items()}
        criterion = ground.criterion
        criterion.sabotages, criterion.blind = criteria.sensitivity(results, ground.reference)
        for component in criterion.blind:
            evidence = f"a resume without its {component} passed the criterion"
            self.result.findings.append(finding("blind-criterion", evidence))

    def _write_plan(self, scenarios: Sequence[Scenario]) -> None:
        plan = {
            "schema": "samestep.plan/1",
            "run_id": self.result.run_id,
            "command": redacted(self.options.command),
            "criterion": self.result.criterion,
            "scenarios": [_without_secrets(scenario) for scenario in scenarios],
        }
        text = msgspec.json.format(msgspec.json.encode(plan), indent=1)
        (self.options.run_folder / "plan.json").write_bytes(text)

    # Scenarios.

    def _run_all(
        self, ground: Ground, scenarios: Sequence[Scenario], forks: Forks
    ) -> Iterator[ScenarioResult]:
        """Run scenarios side by side and yield their results in the order of the plan.

        The long ones are begun first, so that no worker is left alone with one of them at the end.
        """
        with self._pool(ground.workshop) as pool:
            begun = {
                scenario.name: pool.submit(self._run_one, ground, scenario, forks)
                for scenario in sorted(scenarios, key=can_fork)
            }
            futures = [begun[scenario.name] for scenario in scenarios]
            for number, future in enumerate(futures):
                try:
                    yield future.result()
                except KeyboardInterrupt:
                    # what has finished behind a slow scenario is not thrown away
                    self.result.scenarios += [late.result() for late in futures[number:] if _has_result(late)]
                    raise

    def _run_one(self, ground: Ground, scenario: Scenario, forks: Forks) -> ScenarioResult:
        if scenario.name in self._known:
            return self._known[scenario.name]
        self.listener.running(scenario.title)
        try:
            return forks.run(scenario, lambda origins: run_scenario(ground, scenario, origins=origins))
        except Exception as error:  # noqa: BLE001 - one scenario that cannot be carried out must not cost the others
            log = self.options.run_folder / "logs" / f"{scenario.name.replace('/', '-')}.failure.log"
            log.write_text(traceback.format_exc(), encoding="utf-8")
            return not_carried_out(scenario, error, str(log.relative_to(self.options.run_folder)))

    @contextlib.contextmanager
    def _pool(self, workshop: Workshop) -> Iterator[concurrent.futures.ThreadPoolExecutor]:
        """Give a pool of as many workers as attempts may run at a time; an error or Ctrl-C ends every process."""
        pool = concurrent.futures.ThreadPoolExecutor(workshop.jobs, thread_name_prefix="attempt")
        try:
            yield pool
        except BaseException:
            workshop.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            kill_all_trees()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    # The verdict.

    def _hint_resume(self, first: ControlRun) -> None:
        """When every restart began at step 0, name the flag that makes the framework resume."""
        cuts = [item for item in self.result.scenarios if item.family == "cut" and item.expected.resume_step]
        if not cuts or any(item.observed.outcome is not Outcome.RESTARTED for item in cuts):
            return
        name = framework_hint(first.final)
        framework = FRAMEWORKS.get(name) if name else None
        flag = (framework.resume_flag or framework.resume_setting) if framework else "its resume option"
        self.result.message = (
            "The same command starts the run anew. If the script has to be told to resume, say so: "
            f"samestep drill --resume-with '{flag} ...' (may hold {{out}} and {{checkpoint}})"
        )

    def _conclude(self) -> None:
        result = self.result
        silence(result.findings, self.options.silence)
        result.outcome = outcome_of(result)
        code = exit_code_of(result, strict=self.options.strict)
        result.exit_code = int(self._interruption if result.interrupted else code)
        result.not_checked = not_checked(result, self.options, self._not_followed)


def _without_secrets(scenario: Scenario) -> Scenario:
    case = replace(scenario.case, changed=redacted_text(scenario.case.changed))
    return replace(scenario, extra_args=redacted(scenario.extra_args), case=case)


def _has_result(future: concurrent.futures.Future[ScenarioResult]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
