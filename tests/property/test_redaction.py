"""Laws of redaction: no secret survives, nothing else changes, and twice is once."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from samestep.contract.redaction import HIDDEN, redacted, redacted_text

LETTERS = st.text("abcdefghkmnpqrstuvwxyz23456789", min_size=6, max_size=20)
SECRETS = LETTERS.map(lambda text: "zq" + text)
FLAGS = st.sampled_from(
    ["--hub_token", "--hf-token", "--password", "--api-key", "--wandb.api_key", "--clientSecret", "-secret"]
)
VARIABLES = st.sampled_from(
    ["WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "+log.token", "DB_PASSWORD"]
)
PLAIN = st.lists(
    st.sampled_from(["python", "train.py", "--lr", "0.1", "{out}", "-m", "a=b", "x/y", "--max_tokens", "5"])
)
WORDS = st.lists(
    st.text(max_size=30) | st.sampled_from(["--token", "--password", "X_KEY=", "https://a:b@c", "'", '"'])
)


@given(PLAIN, PLAIN, SECRETS, FLAGS, VARIABLES)
def test_no_secret_is_shown_in_words_or_in_a_line(before, after, secret, flag, variable):
    for given_as in (
        [flag, secret],
        [f"{flag}={secret}"],
        [f"{variable}={secret}"],
        [f"https://me:{secret}@host/x"],
    ):
        words = [*before, *given_as, *after]
        shown = redacted(words)
        assert secret not in " ".join(shown)
        assert secret not in redacted_text(shlex.join(words))
        assert len(shown) == len(words)
        assert [w for w in shown if HIDDEN not in w] == [*before, *given_as[:-1], *after]


@given(PLAIN)
def test_a_command_without_secrets_is_shown_as_it_is(words):
    assert redacted(words) == words


@given(WORDS)
def test_redacting_twice_changes_nothing_more(words):
    once = redacted(words)
    assert redacted(once) == once
    line = redacted_text(" ".join(words))
    assert redacted_text(line) == line
