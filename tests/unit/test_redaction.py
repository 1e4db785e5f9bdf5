"""What is shown of a command never holds a secret, and can still be read."""

import pytest

from samestep.contract.redaction import redacted, redacted_text

SHOWN = [
    "python train.py --out {out} --lr 3e-4 --max_tokens 512",
    "torchrun --nproc-per-node 2 train.py --tokenizer gpt2 --pad_token <pad> --eos-token-id 2 --num_tokens 1000",
    "python train.py --token 5 --use_auth_token True --author me --keys a b --primary_key id --monkey banana",
    "git clone ssh://git@example.com/x.git https://example.com/a?b=c&step=3",
    "python train.py data.path=/data optimizer.lr=0.1 --stop-token END --max_new_tokens 5 --passes 3",
    "python train.py --pass 2 --tokens_per_batch 4096 --secret-santa",
]


@pytest.mark.parametrize("command", SHOWN)
def test_what_is_no_secret_stays_as_it_is(command):
    assert redacted(command.split()) == command.split()
    assert redacted_text(command) == command


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python t.py --hub_token hf_x1 --lr 1", "python t.py --hub_token *** --lr 1"),
        ("python t.py --hub-token=hf_x1", "python t.py --hub-token=***"),
        ("env WANDB_API_KEY=abcdef python t.py", "env WANDB_API_KEY=*** python t.py"),
        ("AWS_SECRET_ACCESS_KEY=a/b+c= python t.py", "AWS_SECRET_ACCESS_KEY=*** python t.py"),
        ("t --password 123456 --db-pass hunter2", "t --password *** --db-pass ***"),
        ("t +logger.api_key=abc logger.apiKey=abc", "t +logger.api_key=*** logger.apiKey=***"),
        ("t --url https://me:pw@host/x", "t --url https://***@host/x"),
        ("t --url https://ghtoken@host/x", "t --url https://***@host/x"),
        ("t postgres://me:pw@host/x", "t postgres://***@host/x"),
        ("t https://host/x?access_token=abc&b=2", "t https://host/x?access_token=***&b=2"),
        ("t --name hf_abcdefghijklmnopqrstuvwx", "t --name ***"),
        ("t --key AKIAABCDEFGHIJKLMNOP --x 1", "t --key *** --x 1"),
        ("t --clientSecret s3cr3t", "t --clientSecret ***"),
        ("t --password --verbose", "t --password --verbose"),
    ],
)
def test_secrets_are_hidden_by_name_place_and_shape(command, shown):
    assert redacted(command.split()) == shown.split()
    assert redacted_text(command) == shown


def test_a_shell_line_inside_a_word_is_redacted_too():
    line = "WANDB_API_KEY=abc python t.py --hub_token 'hf x' --out {out}"
    assert redacted(["bash", "-c", line])[2] == "WANDB_API_KEY=*** python t.py --hub_token '***' --out {out}"


def test_quotes_around_a_command_survive():
    line = "samestep drill --resume-with '--resume {out} --hub_token hf_abc' -- python t.py"
    assert (
        redacted_text(line) == "samestep drill --resume-with '--resume {out} --hub_token ***' -- python t.py"
    )


def test_headers_are_redacted():
    shown = redacted(["--header", "Authorization: Bearer abc.def-ghi"])
    assert shown == ["--header", "Authorization: Bearer ***"]
