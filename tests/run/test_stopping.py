"""Notices come through one seam, and handlers belong to the process that set them."""

from __future__ import annotations

import os
import signal

import pytest

from samestep.run.stopping import INTERRUPTED, RESTART_WANTED, Notice, Signals, Stopping


@pytest.fixture
def stopping():
    made = Stopping([Signals()])
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGUSR1], ids=lambda one: one.name)
def test_a_signal_is_a_notice_that_asks_for_a_restart(stopping, sent):
    os.kill(os.getpid(), sent)
    assert stopping.notice == Notice(sent.name, exit_code=RESTART_WANTED)


def test_ctrl_c_is_one_to_leave_and_twice_to_leave_at_once(stopping):
    os.kill(os.getpid(), signal.SIGINT)
    assert stopping.notice.exit_code == INTERRUPTED
    assert not stopping.at_once
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert stopping.at_once


def test_the_first_notice_counts(stopping):
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)
    assert stopping.notice.source == "SIGUSR1"


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in (*Signals.NOTICES, signal.SIGINT)]
    stopping = Stopping([Signals()])
    stopping.start()
    stopping.stop()
    assert [signal.getsignal(number) for number in (*Signals.NOTICES, signal.SIGINT)] == before


def test_a_forked_process_ends_by_the_signal_as_if_there_were_no_handler(stopping):
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM
    assert stopping.notice is None


def test_another_source_is_heard_like_signals():
    class Cloud:
        def start(self, arrived):
            arrived(Notice("maintenance", seconds_left=30.0))

        def stop(self):
            pass

    stopping = Stopping([Cloud(), Signals()])
    stopping.start()
    stopping.stop()
    assert stopping.notice.source == "maintenance"
