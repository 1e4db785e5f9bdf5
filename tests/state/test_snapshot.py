"""A snapshot is the state at the call: nothing that happens later gets into the bundle."""

from __future__ import annotations

import copy
import gc
import hashlib
import threading

import pytest
import safetensors.torch
import torch

from plain_trees import TrackedTree
from samestep.bundle.errors import CommitRefused, DamageError, StoreError
from samestep.bundle.storage.local import LocalStorage
from samestep.state import Capture, RankFailed, StateError, arena, leaves, restore, snapshot, staging, track
from samestep.state.arena import Arena
from state_saving import first_attempt, save, save_together
from thread_ranks import together


class Training:
    """A model with batch norm, its optimizer, and an average of it."""

    def __init__(self, width=400):
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(30, width), torch.nn.BatchNorm1d(width), torch.nn.Linear(width, 2)
        )
        self.ema = torch.optim.swa_utils.AveragedModel(self.net, use_buffers=True)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)

    def step(self):
        self.optimizer.zero_grad()
        self.net(torch.randn(4, 30)).sum().backward()
        self.optimizer.step()

    def tracked(self):
        return [
            track("net", self.net),
            track("ema", self.ema),
            track("adam", self.optimizer, models={"net": self.net}),
        ]

    def digest(self):
        """Return a digest of all of the state."""
        return digest_of(self.tracked())


def digest_of(tracked):
    digest = hashlib.sha256()
    for one in tracked:
        state = leaves.encode(one.read())
        digest.update(repr(state.value).encode())
        for name in sorted(state.tensors):
            digest.update(
                state.tensors[name].detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            )
    return digest.hexdigest()


def stored_digest(bundle, storage):
    """Return the digest of the state in a bundle, restored into another training."""
    other = Training()
    restore(other.tracked(), bundle, storage)
    return other.digest()


@pytest.fixture
def attempt(tmp_path):
    return first_attempt(tmp_path / "run")


@pytest.mark.parametrize("overlap", [False, True], ids=["staged at once", "staged behind the training"])
def test_steps_averages_and_batch_norm_after_the_call_do_not_get_in(attempt, overlap):
    training = Training()
    capture = Capture(training.tracked())
    for step in range(4):
        training.step()
        training.ema.update_parameters(training.net)
        expected = training.digest()
        taken = capture.take(overlap=overlap)
        training.ema.update_parameters(training.net)
        training.net(torch.randn(4, 30))
        taken.wait_staged()
        training.step()
        bundle = save(attempt, taken, step=step)
        taken.close()
        assert stored_digest(bundle, attempt.chain.storage) == expected != training.digest()


def test_a_parameter_that_is_changed_outside_of_an_update_while_it_is_copied_fails_the_save(attempt):
    training = Training(width=9000)
    training.step()
    capture = Capture(training.tracked())
    taken = capture.take(overlap=True)
    with torch.no_grad():
        training.net[0].weight.mul_(0.5)
    with pytest.raises(StateError, match="outside of an optimizer update"):
        save(attempt, taken, step=1)
    taken.close()
    taken = capture.take(overlap=True)
    taken.wait_staged()
    training.step()
    save(attempt, taken, step=2)


def test_who_waits_for_the_copy_first_sees_nothing_of_what_the_second_changes_after_waiting(monkeypatch):
    """The background and the training wait for the same copy; only then does the training change parameters."""
    weight = torch.zeros(3)
    staged, differs = staging.Staged(), staging.Staged._differs
    staged.watched = [(weight, staging.version_of(weight))]
    looking, updated = threading.Event(), threading.Event()

    def slowly(self):
        if threading.current_thread() is not threading.main_thread():
            looking.set()
            updated.wait(0.3)
        return differs(self)

    monkeypatch.setattr(staging.Staged, "_differs", slowly)
    background = threading.Thread(target=staged.guard)
    background.start()
    assert looking.wait(10)
    staged.guard()
    weight += 1
    updated.set()
    background.join()
    staged.check()


def test_weights_that_are_not_trained_do_not_wait_for_an_update(attempt):
    training, other = Training(width=9000), Training(width=9000)
    training.net[0].weight.requires_grad_(False)
    expected = training.digest()
    taken = Capture(training.tracked()).take(overlap=True)
    with torch.no_grad():
        training.net[0].weight.zero_()
    restore(other.tracked(), save(attempt, taken, step=1), attempt.chain.storage)
    assert other.digest() == expected


def test_marks_tell_whether_parameters_have_changed_by_whatever_way():
    training = Training()
    capture = Capture(training.tracked())
    before = capture.marks()
    training.net(torch.randn(4, 30))
    assert capture.marks() == before
    training.net[0].weight.data.mul_(0.5)
    assert capture.marks() != before


def test_what_changes_outside_of_updates_is_copied_before_take_returns(attempt, monkeypatch):
    """Also when copying overlaps with the training, and however late the copying thread comes to it."""
    may_copy = threading.Event()
    work = staging._work
    monkeypatch.setattr(staging, "_work", lambda waiting: (may_copy.wait(30), work(waiting)))
    monkeypatch.setattr(staging, "HELPERS", 0)
    training = Training(width=9000)
    training.step()
    may_copy.set()
    expected = training.digest()
    capture = Capture(training.tracked())
    may_copy.set()
    capture.take().close()
    may_copy.clear()
    done = threading.Thread(target=lambda: may_copy.wait(30))
    done.start()
    taken = None

    def take():
        nonlocal taken
        taken = capture.take(overlap=True)

    with monkeypatch.context() as patch:
        patch.setattr(staging, "_together", lambda tasks: [task() for task in tasks])
        take()
    assert not all(future.done() for future in taken._staged.futures)
    with torch.no_grad():
        for average in training.ema.parameters():
            average.zero_()
        training.net[1].running_mean.fill_(7)
    may_copy.set()
    taken.wait_staged()
    training.step()
    bundle = save(attempt, taken)
    other = Training(width=9000)
    restore(other.tracked(), bundle, attempt.chain.storage)
    assert other.digest() == expected


def test_a_second_snapshot_at_once_leaves_the_first_alone(attempt):
    training = Training()
    capture = Capture(training.tracked())
    training.step()
    first, expected = capture.take(), [training.digest()]
    training.step()
    second, expected = capture.take(), [*expected, training.digest()]
    training.step()
    bundles = [save(attempt, taken, step=step) for step, taken in enumerate([first, second])]
    assert [stored_digest(bundle, attempt.chain.storage) for bundle in bundles] == expected


def test_values_that_are_no_tensors_are_those_at_the_call(attempt):
    counts = {"seen": [1, 2], "inner": {"best": 0.5}}
    taken = Capture([TrackedTree("counts", counts)]).take()
    expected = copy.deepcopy(counts)
    counts["seen"].append(3)
    counts["inner"]["best"] = 0.7
    bundle = save(attempt, taken)
    again = TrackedTree("counts", {})
    restore([again], bundle, attempt.chain.storage)
    assert again.tree == expected


def test_memory_is_used_again_and_no_third_snapshot_gets_any(monkeypatch):
    monkeypatch.setattr(arena, "WAIT_SECONDS", 0.2)
    capture = Capture(Training().tracked(), arena=Arena())
    first, second = capture.take(), capture.take()
    addresses = {taken._lease.slot.address for taken in (first, second)}
    assert len(addresses) == 2
    with pytest.raises(StateError, match="memory for another snapshot"):
        capture.take()
    first.close()
    third = capture.take()
    assert third._lease.slot.address in addresses
    del second, third
    gc.collect()
    assert capture.take().copied


def test_a_closed_snapshot_leaves_its_memory_to_the_bundle_that_still_reads_it(attempt):
    """What the store may have to write again at commit must not be overwritten by the next snapshot."""
    training = Training()
    capture = Capture(training.tracked(), arena=Arena(slots=1))
    expected = training.digest()
    taken = capture.take()
    with attempt.begin(step=1) as saving:
        taken.write(saving)
        del taken
        gc.collect()
        assert capture._arena._free == [] or saving._parts._contents == {}
        saving.abandon()
    assert expected == training.digest()


def test_without_memory_for_a_copy_the_live_state_is_written_at_once(attempt, monkeypatch):
    monkeypatch.setattr(arena, "fits", lambda _: False)
    training = Training()
    training.step()
    taken = Capture(training.tracked(), arena=Arena()).take(overlap=True)
    assert not taken.copied
    monkeypatch.undo()
    bundle = save(attempt, taken)
    assert stored_digest(bundle, attempt.chain.storage) == training.digest()


def test_a_changed_structure_is_planned_anew(attempt):
    tree = {"a": torch.ones(3)}
    capture = Capture([TrackedTree("things", tree)])
    plans = set()
    for step, change in enumerate(
        [{}, {}, {"b": torch.ones(2)}, {"a": torch.ones(4)}, {"a": torch.ones(4).half()}]
    ):
        tree |= change
        bundle = save(attempt, capture.take(), step=step)
        plans.add(id(capture._plan))
        again = TrackedTree("things", {})
        restore([again], bundle, attempt.chain.storage)
        assert leaves.differences(again.tree, tree) == []
        kept = capture._plan
        assert kept is not None
    assert len(plans) >= 2


class TestFrozen:
    """Frozen weights under an adapter."""

    def adapter(self):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(1500, 1500), torch.nn.Linear(1500, 4))
        net[0].requires_grad_(False)
        optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad])
        net(torch.randn(2, 1500)).sum().backward()
        optimizer.step()
        return net, optimizer, [track("net", net), track("adam", optimizer, models={"net": net})]

    def test_are_written_and_copied_once(self, attempt, monkeypatch):
        net, _, tracked = self.adapter()
        capture = Capture(tracked)
        bundles = []
        for step in range(3):
            bundles.append(save(attempt, capture.take(), step=step))
            with torch.no_grad():
                net[1].weight += 1
        for bundle in bundles[1:]:
            written = sum(part.size for part in bundle.manifest.parts if not part.share_depth)
            assert written < 0.03 * bundle.manifest.size
        copied = []
        monkeypatch.setattr(
            "samestep.state.capture.stage", lambda now, later, slot: copied.extend(now) or staging.Staged()
        )
        capture.take()
        assert sum(copy.nbytes for copy in copied) < 0.03 * bundles[0].manifest.size

    def test_are_written_again_when_they_were_changed_after_all(self, attempt):
        net, _, tracked = self.adapter()
        capture = Capture(tracked)
        save(attempt, capture.take(), step=0)
        net[0].weight.data[3, 3] += 1
        expected = digest_of(tracked)
        bundle = save(attempt, capture.take(), step=1)
        again, _, others = self.adapter()
        restore(others, bundle, attempt.chain.storage)
        assert digest_of(others) == expected
        assert torch.equal(again[0].weight, net[0].weight)

    def test_changed_between_the_call_and_the_write_do_not_get_in(self, attempt, tmp_path):
        net, _, tracked = self.adapter()
        capture = Capture(tracked)
        save(attempt, capture.take(), step=0)
        taken = capture.take()
        net[0].weight.data += 1
        elsewhere = first_attempt(tmp_path / "elsewhere")
        with elsewhere.begin(step=1) as saving, pytest.raises((DamageError, CommitRefused)):
            taken.write(saving)


def replicated(rank):
    """Return what every rank holds alike, and something of its own. Threads share torch's generator: no randomness."""
    weights = {"w": torch.arange(350.0).reshape(50, 7), "b": torch.ones(3)}
    return [
        TrackedTree("net", weights, "weights", whole=True),
        TrackedTree("adam", {f"m{n}": torch.arange(100.0) + n for n in range(8)}, "optimizer"),
        TrackedTree("rng", {"state": torch.full((4,), rank), "count": rank}, "rng", per_rank=True),
        TrackedTree("notes", {"host": rank, "seen": torch.tensor(rank), "same": torch.ones(2)}),
    ]


class TestRanks:
    """Several ranks that hold the same, and each something of its own."""

    def saved(self, attempt, work=lambda _: None, size=3):
        storage = LocalStorage(attempt.chain.storage.root)

        def save_one(ranks):
            taken = Capture(replicated(ranks.rank), ranks, arena=Arena()).take()
            work(ranks)
            return save_together(ranks, taken, attempt if ranks.rank == 0 else None, storage)

        return together(size, save_one)

    def test_write_what_is_the_same_once_and_what_differs_for_each(self, attempt):
        bundle = self.saved(attempt)[0]
        paths = {part.path: part for part in bundle.manifest.parts}
        assert "model.safetensors" in paths
        assert sum(path.startswith("rng-") for path in paths) == 3
        writers = {part.rank for path, part in paths.items() if path.startswith("adam-")}
        assert len(writers) > 1
        assert sum(part.size for path, part in paths.items() if path.startswith("adam")) < 8 * 400 + 3 * 1000

    @pytest.mark.parametrize("size", [1, 2, 3])
    def test_restore_what_is_theirs_also_when_they_are_fewer(self, attempt, size):
        bundle = self.saved(attempt)[0]
        objects = [[TrackedTree(one.name, {}, one.component) for one in replicated(0)] for _ in range(size)]
        done = together(
            size, lambda ranks: restore(objects[ranks.rank], bundle, attempt.chain.storage, ranks=ranks)
        )
        for rank, (own, found) in enumerate(zip(objects, done, strict=True)):
            assert found.kept == ()
            for one, expected in zip(own, replicated(rank), strict=True):
                assert leaves.differences(one.tree, expected.tree) == []

    def test_keep_their_own_state_where_none_was_stored_and_say_so(self, attempt):
        bundle = self.saved(attempt, size=1)[0]
        objects = [
            [TrackedTree(one.name, {"new": 1}, one.component) for one in replicated(0)] for _ in range(2)
        ]
        first, second = together(
            2, lambda ranks: restore(objects[ranks.rank], bundle, attempt.chain.storage, ranks=ranks)
        )
        assert (first.kept, second.kept) == ((), ("rng",))
        assert objects[1][2].tree == {"new": 1}
        assert leaves.differences(objects[1][0].tree, replicated(1)[0].tree) == []

    def test_have_buffers_of_their_own_beside_a_model_that_opens_as_it_is(self, attempt):
        def model(rank):
            return {"w": torch.ones(4), "mean": torch.full((4,), float(rank))}

        storage = LocalStorage(attempt.chain.storage.root)

        def save_one(ranks):
            tracked = [TrackedTree("net", model(ranks.rank), "weights", whole=True)]
            taken = Capture(tracked, ranks, arena=Arena()).take()
            return save_together(ranks, taken, attempt if ranks.rank == 0 else None, storage)

        bundle = together(2, save_one)[0]
        paths = {part.path for part in bundle.manifest.parts if part.path.endswith(".safetensors")}
        assert paths == {"model.safetensors", "model.rank-00001.safetensors"}
        opened = safetensors.torch.load_file(storage.root / "bundles" / bundle.id / "model.safetensors")
        assert {name: tensor.tolist() for name, tensor in opened.items()} == {
            name: tensor.tolist() for name, tensor in model(0).items()
        }
        objects = [[TrackedTree("net", {}, "weights", whole=True)] for _ in range(2)]
        together(2, lambda ranks: restore(objects[ranks.rank], bundle, storage, ranks=ranks))
        for rank, (one,) in enumerate(objects):
            assert leaves.differences(one.tree, model(rank)) == []

    def test_save_nothing_when_one_of_them_cannot_write(self, attempt, monkeypatch):
        before = attempt.chain.head()
        write = snapshot.Snapshot.write

        def failing(self, writer):
            if self._setting.ranks.rank == 1:
                raise StoreError("no more disk")
            return write(self, writer)

        monkeypatch.setattr(snapshot.Snapshot, "write", failing)
        for error in self.saved(attempt):
            assert "rank 1: no more disk" in str(error)
        assert attempt.chain.head() == before
        assert list(attempt.chain.storage.entries("bundles/")) == []

    def test_take_nothing_when_one_of_them_cannot_read_its_state(self, attempt):
        def take(ranks):
            tree = {"w": torch.ones(3) if ranks.rank != 2 else object()}
            return Capture([TrackedTree("net", tree)], ranks).take()

        *others, failed = together(3, take)
        assert isinstance(failed, StateError)
        assert "net.w" in failed.message
        assert all(isinstance(error, RankFailed) and "rank 2" in error.message for error in others)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("overlap", [False, True], ids=["staged at once", "staged behind the training"])
def test_on_a_cuda_device_nothing_that_happens_later_gets_in(attempt, overlap):
    def built():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(30, 4000), torch.nn.BatchNorm1d(4000)).cuda()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        return net, optimizer, [track("net", net), track("adam", optimizer, models={"net": net})]

    def step():
        optimizer.zero_grad()
        net(torch.randn(4, 30, device="cuda")).sum().backward()
        optimizer.step()

    def whole():
        return {
            (one.name, key): tensor.detach().cpu()
            for one in tracked
            for key, tensor in leaves.encode(one.read()).tensors.items()
        }

    net, optimizer, tracked = built()
    capture = Capture(tracked)
    for number in range(3):
        step()
        expected = {key: tensor.clone() for key, tensor in whole().items()}
        taken = capture.take(overlap=overlap)
        taken.wait_staged()
        step()
        bundle = save(attempt, taken, step=number)
        taken.close()
        net, optimizer, tracked = built()
        restore(tracked, bundle, attempt.chain.storage)
        assert all(torch.equal(tensor, expected[key]) for key, tensor in whole().items())
        capture = Capture(tracked)
