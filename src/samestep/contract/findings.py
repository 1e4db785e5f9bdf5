"""The findings table: every defect samestep can name. The long text of each is its page in ``docs/findings/``."""

from __future__ import annotations

from dataclasses import dataclass

from .words import Component, Severity

C = Component


@dataclass(frozen=True)
class FindingKind:
    """A named defect.

    Attributes:
        slug: stable name.
        components: parts of the training state it concerns by default; empty for measurement findings.
        severity: how much it counts.
        title: what is wrong, in a short phrase.
        cause: the most usual cause, one sentence.
        fix: what to do, one sentence.
        rank: order in which findings of one scenario are shown; the lower one explains the higher.
    """

    slug: str
    components: tuple[Component, ...]
    severity: Severity
    title: str
    cause: str
    fix: str
    rank: int


def _defect(slug: str, components: tuple[Component, ...], title: str, cause: str, fix: str) -> FindingKind:
    return FindingKind(slug, components, Severity.DEFECT, title, cause, fix, 0)


def _measurement(slug: str, title: str, cause: str, fix: str) -> FindingKind:
    return FindingKind(slug, (), Severity.MEASUREMENT, title, cause, fix, 0)


def _note(slug: str, components: tuple[Component, ...], title: str, cause: str, fix: str) -> FindingKind:
    return FindingKind(slug, components, Severity.NOTE, title, cause, fix, 0)


_ORDERED = (
    _measurement(
        "not-watched",
        "the training process left no trace",
        "the interpreter was started with -I or -S, or the launcher cleared PYTHONPATH",
        "start Python without -I and -S, or call samestep.probe.install() at the top of the script",
    ),
    _measurement(
        "noisy-control",
        "two uninterrupted runs differ too much to judge a third",
        "an unseeded generator, or kernels that do not repeat",
        "set the seeds, or torch.use_deterministic_algorithms(True) for the drill",
    ),
    _measurement(
        "recording-unproven",
        "the recorded file operations do not account for what the run left on disk",
        "a writer outside the process tree, a shared mapping, or a limit of the recording was reached",
        "see the notes in the report; raise the limit, or write through ordinary files",
    ),
    _measurement(
        "blind-criterion",
        "the criterion did not catch a sabotage made on purpose",
        "the runs are so noisy that a lost state hides in the noise",
        "make the run repeat more closely for the drill, or verify more steps (--verify-steps)",
    ),
    _measurement(
        "watching-changes-run",
        "the run leaves other tensors when it is watched",
        "the script looks at the environment, at its own frames or at timing",
        "please report it; until then the verdict says nothing about the unwatched run",
    ),
    _defect(
        "never-saved",
        (C.COMPLETENESS,),
        "no checkpoint was written",
        "saving is switched off, or its interval is longer than the run",
        "save every few steps under the folder given as {out}",
    ),
    _defect(
        "no-checkpoint-on-notice",
        (C.COMPLETENESS,),
        "a termination notice brought no save",
        "no handler for SIGTERM, or it only sets a flag that nothing reads",
        "save when SIGTERM arrives and leave; periodic saves still carry the run",
    ),
    _defect(
        "notice-overran",
        (C.COMPLETENESS,),
        "the process was still there when the grace period ended",
        "the handler waits for the end of an epoch, or the save takes longer than the notice",
        "finish the step, save, exit; measure the save against the grace period",
    ),
    _defect(
        "leaned-on-lost-machine",
        (C.COMPLETENESS,),
        "the restart needed something that only the lost machine had",
        "state is kept in the working folder, HOME, a cache or a shared input instead of {out}",
        "write everything a restart needs under the durable folder",
    ),
    _defect(
        "last-good-deleted-first",
        (C.ROTATION,),
        "an interruption of the save leaves no whole checkpoint: the old one goes before the new one is safe",
        "old checkpoints are deleted before the new one is complete and durable, often with a limit of one",
        "keep at least two checkpoints (save_total_limit=2); delete the old one only after the new one is synced",
    ),
    _defect(
        "in-place-overwrite",
        (C.COMPLETENESS,),
        "an interruption of the save leaves no whole checkpoint: the new one is written over the old one",
        "every save writes the same file or folder, with no complete copy beside it",
        "write to a temporary name and rename it over the old one after fsync, or save to a new name each time",
    ),
    _defect(
        "mixed-generations",
        (C.COMPLETENESS,),
        "a checkpoint that holds files of several saves was loaded as if it were one",
        "files of a checkpoint are replaced one by one, and nothing says which belong together",
        "save each checkpoint into a folder of its own, and store the step in every file",
    ),
    _defect(
        "not-durable-after-save",
        (C.COMPLETENESS,),
        "a checkpoint is lost or torn by a power loss after its save had returned",
        "no fsync: the operating system writes files back up to half a minute later",
        "fsync every file and then its folder before the save returns; until then keep the checkpoint before it",
    ),
    _defect(
        "rename-not-durable",
        (C.COMPLETENESS,),
        "a change of names was lost in a power loss although later ones were kept",
        "the folder was not synced after a file was renamed, created or deleted in it",
        "fsync the folder after the rename, before anything that relies on it",
    ),
    _defect(
        "torn-checkpoint-selected",
        (C.SELECTION, C.COMPLETENESS),
        "a half-written checkpoint was picked",
        "the newest name wins without a look at its content",
        "write aside and rename, and check a checkpoint before resuming from it",
    ),
    _defect(
        "stale-checkpoint-selected",
        (C.SELECTION,),
        "an older or foreign checkpoint was picked although a newer whole one was there",
        "selection by name order or modification time",
        "select by the step number stored inside, and only among this run's checkpoints",
    ),
    _defect(
        "damaged-checkpoint-accepted",
        (C.ACCESS,),
        "a damaged file was loaded without a word",
        "no size or digest is checked on loading",
        "verify digests before loading",
    ),
    _defect(
        "silent-restart",
        (C.PROGRESS,),
        "the run began again from the start although a checkpoint was there",
        "the resume flag was not given, or a failed load is swallowed",
        "pass the resume flag on every start, and stop when a checkpoint cannot be loaded",
    ),
    _defect(
        "crash-on-resume",
        (C.COMPLETENESS,),
        "the restart stopped with an error that does not name what is wrong",
        "the loading code meets a state that it does not expect",
        "read the end of the log; check the checkpoint with samestep inspect",
    ),
    _defect(
        "weights-are-averaged",
        (C.EMA, C.WEIGHTS),
        "the run continued from the averaged weights",
        "only the EMA copy is saved, or it is loaded in place of the raw weights",
        "save both and restore each to its own place",
    ),
    _defect(
        "weights-not-restored",
        (C.WEIGHTS,),
        "the weights before the first step match no step of the control",
        "keys do not match and loading is not strict (a wrapper's prefix), or the load is missing",
        "load with strict=True and strip wrapper prefixes",
    ),
    _defect(
        "buffers-lost",
        (C.WEIGHTS,),
        "buffers such as batch-norm statistics were not restored",
        "only named_parameters() are saved, or loading is not strict",
        "save and load the whole state_dict()",
    ),
    _defect(
        "optimizer-reset",
        (C.OPTIMIZER,),
        "the optimizer started with fresh state",
        "its state is not saved, or not loaded",
        "save optimizer.state_dict() and load it after the model is in place",
    ),
    _defect(
        "optimizer-partly-reset",
        (C.OPTIMIZER,),
        "part of the optimizer state was not restored",
        "one of several optimizers, or one kind of state, is missing, or is matched to the wrong parameter",
        "save every optimizer, and restore by parameter name",
    ),
    _defect(
        "schedule-restarted",
        (C.SCHEDULE,),
        "the learning-rate schedule began again",
        "the scheduler's state is not saved, or it is built after the optimizer was loaded",
        "save scheduler.state_dict(); build the scheduler first, then load optimizer and scheduler",
    ),
    _defect(
        "schedule-shifted",
        (C.SCHEDULE,),
        "the learning rate is not the control's",
        "the schedule is sized or stepped differently after the resume",
        "restore the scheduler last, and size it from the same total of steps",
    ),
    _defect(
        "scaler-reset",
        (C.SCALER,),
        "the loss scaler was not restored",
        "scaler.state_dict() is not saved",
        "save and load the scaler beside the optimizer",
    ),
    _defect(
        "ema-lost",
        (C.EMA,),
        "the averaged weights were not restored",
        "the averaged model is built anew from the current weights",
        "save its state_dict(), the update counter included",
    ),
    _defect(
        "accumulation-lost",
        (C.ACCUMULATION,),
        "gradients gathered before the save were lost",
        "the save happens inside an accumulation window",
        "save only after an optimizer step, or save the gradients too",
    ),
    _defect(
        "data-position-restarted",
        (C.DATA_POSITION,),
        "the data began again at the start of the epoch",
        "the loader starts its epoch again while the step counter goes on",
        "a loader with state_dict/load_state_dict, or skip the batches already used",
    ),
    _defect(
        "data-repeated",
        (C.DATA_POSITION,),
        "samples were used twice",
        "the stored position lags behind the batches already used",
        "store the position after the step that used the batch",
    ),
    _defect(
        "data-skipped",
        (C.DATA_POSITION,),
        "samples were left out",
        "the stored position runs ahead of the batches used (prefetching), or is scaled wrongly",
        "count delivered batches, not fetched ones",
    ),
    _defect(
        "data-order-changed",
        (C.DATA_ORDER,),
        "the samples come in another order",
        "the shuffle is drawn from a generator that is not restored",
        "seed the sampler from the epoch, or save its generator",
    ),
    _defect(
        "worker-rng-not-restored",
        (C.RNG,),
        "the right samples came with other content",
        "random augmentation draws from a generator that is not restored (loader workers, or the data set's own)",
        "derive the augmentation's seed from epoch and sample index",
    ),
    _defect(
        "rng-not-restored",
        (C.RNG,),
        "random generators are not in the control's state",
        "their state is not saved",
        "save and restore Python's, NumPy's and torch's generators",
    ),
    _defect(
        "callbacks-reset",
        (C.CALLBACKS,),
        "state of callbacks or best-metric tracking was not restored",
        "patience counters and best values live outside the checkpoint",
        "save callback state (transformers: restore_callback_states_from_checkpoint=True)",
    ),
    _defect(
        "progress-wrong",
        (C.PROGRESS,),
        "the run's own counters disagree with its state",
        "the counter is stored before or after the step it belongs to, or is scaled wrongly",
        "store counter and state at the same point",
    ),
    _defect(
        "config-drift",
        (C.CONFIG,),
        "a setting is not the one the checkpoint was made with",
        "settings come from the new command line, or from the checkpoint although they were changed",
        "compare settings on resume and refuse or record the change",
    ),
    _defect(
        "steps-after-finish",
        (C.PROGRESS,),
        "the finished run went on training when started once more",
        "the end is not stored, or the last epoch is repeated",
        "stop when the stored progress has reached the end",
    ),
    _defect(
        "run-length-changed",
        (C.PROGRESS,),
        "the restarted run ended at another step than the control",
        "the remaining steps are counted from the restart, or early stopping lost its state",
        "count the remaining steps from the stored progress",
    ),
    _defect(
        "artefacts-differ",
        (C.PROGRESS,),
        "the final files differ although the steps agreed",
        "state that only shows in the end: best-metric file, averaged weights, run length",
        "save what the final files are made from",
    ),
    _defect(
        "step-differs",
        (C.ENVIRONMENT,),
        "all recorded state agreed before the step, and yet its result did not",
        "state that the probe cannot see, or another code path after a resume",
        "look at untracked state in the report; compare library versions and thread counts",
    ),
    _defect(
        "lost-work",
        (C.SELECTION,),
        "the run went back further than it had to",
        "the state comes from something that is no checkpoint of its own there, or is wound back after loading",
        "pick the newest whole checkpoint, and go on from exactly the state in it",
    ),
    _defect(
        "world-changed",
        (C.WORLD,),
        "state of some ranks was dropped or restarted",
        "state is kept per rank and the number of ranks changed, or ranks picked different checkpoints",
        "agree on one checkpoint across ranks, and refuse or reshard when their number changes",
    ),
    _note(
        "byte-flip-accepted",
        (C.ACCESS,),
        "a flipped byte was loaded without a word",
        "the framework stores no digest of its files",
        "keep checkpoints in a store that verifies digests",
    ),
    _note(
        "save-failed-silently",
        (C.COMPLETENESS,),
        "a save met an error of the disk, and the run said nothing about it",
        "the error is caught and dropped, or happens in a thread that nobody asks",
        "let a failed save stop the run, or log it as an error and count it",
    ),
    _note(
        "fork-differs",
        (C.ENVIRONMENT,),
        "a restart forked from a preloaded process went another way than one in a fresh process",
        "a library keeps state from its import that a fork shares, or the run is noisy",
        "nothing in the run: the fresh process was believed; --fresh keeps the drill from forking",
    ),
    _note(
        "untracked-state",
        (C.RNG,),
        "state was found that no checkpoint is known to hold",
        "own random generators or stateful objects in the loop",
        "save it if it influences the run",
    ),
)

FINDINGS: dict[str, FindingKind] = {
    kind.slug: FindingKind(
        kind.slug, kind.components, kind.severity, kind.title, kind.cause, kind.fix, position
    )
    for position, kind in enumerate(_ORDERED)
}
"""All findings by slug, in the order in which they explain one another."""
