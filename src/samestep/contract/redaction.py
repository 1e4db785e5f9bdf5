"""Hiding secrets in what is shown of a command: tokens, passwords, keys. Pure; the one place where that is decided."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

HIDDEN = "***"
"""What stands for a secret."""

_SECRET_WORDS = frozenset(
    {
        "token",
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "pass",
        "secret",
        "credential",
        "credentials",
        "auth",
    }
    | {"apikey", "authorization", "bearer", "jwt", "pat"}
)
_SECRET_KEYS = frozenset(
    {
        "api",
        "access",
        "private",
        "secret",
        "auth",
        "account",
        "storage",
        "signing",
        "encryption",
        "app",
        "service",
    }
)
_TOKENS_OF_TEXT = frozenset(
    {
        "pad",
        "eos",
        "bos",
        "unk",
        "sep",
        "cls",
        "mask",
        "special",
        "stop",
        "start",
        "end",
        "image",
        "audio",
        "video",
    }
    | {
        "prompt",
        "response",
        "decoder",
        "forced",
        "per",
        "new",
        "max",
        "min",
        "num",
        "next",
        "extra",
        "boi",
        "eoi",
    }
)
"""What stands before ``token`` where a language model's token is meant."""

_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NAME = r"[A-Za-z][\w.-]*"
_VALUE = r"\"[^\"]*\"|'[^']*'|[^\s\"'&]+"
_GIVEN = re.compile(rf"(?<![\w.-])(?P<name>-{{0,2}}\+{{0,2}}{_NAME})(?P<join>=|:\s+)(?P<value>{_VALUE})")
_FOLLOWED = re.compile(rf"(?<![\w.-])(?P<name>--?{_NAME})(?P<join>\s+)(?P<value>(?!-)(?:{_VALUE}))")
_QUERY = re.compile(rf"(?<=[?&])(?P<name>{_NAME})(?P<join>=)(?P<value>[^\s\"'&#]+)")
_BEARER = re.compile(r"(?P<name>\b(?:Bearer|Basic))(?P<join>\s+)(?P<value>[\w.~+/=-]{8,})")
_LOGIN = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?P<login>[^\s/@\"']+)@", re.IGNORECASE)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{20,}"
    r"|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|wandb_v\d_\w{20,}|eyJ[\w-]{8,}\.[\w-]+\.[\w-]+)"
)
"""Secrets that are known by how they look, whatever they are given to."""

_HARMLESS = re.compile(r"bearer|basic|true|false|none|null|yes|no|-?[\d.]+|<.*>|\{\w+\}|\*{3}", re.IGNORECASE)
_ALWAYS_SECRET = frozenset({"password", "passwd", "passphrase", "pwd", "secret"})


def redacted(words: Iterable[str]) -> list[str]:
    """Return a command's words with every secret replaced by ``***``; names of options and all else stay readable."""
    shown: list[str] = []
    before = ""
    for word in words:
        follows = before.startswith("-") and "=" not in before and not word.startswith("-")
        hidden = follows and _is_secret(before, word)
        shown.append(HIDDEN if hidden else redacted_text(word))
        before = word
    return shown


def redacted_text(text: str) -> str:
    """Return a line of text, such as a quoted command, with every secret in it replaced by ``***``."""
    text = _LOGIN.sub(_without_login, text)
    text = _BEARER.sub(rf"\g<name>\g<join>{HIDDEN}", text)
    for pattern in (_QUERY, _GIVEN, _FOLLOWED):
        text = pattern.sub(_without_value, text)
    return _SHAPES.sub(HIDDEN, text)


def _without_value(match: re.Match[str]) -> str:
    value = match["value"]
    quote = value[0] if value[0] in "\"'" else ""
    inner = value[1:-1] if quote else value
    if _is_secret(match["name"], inner):
        inner = HIDDEN
    elif quote:
        inner = redacted_text(inner)  # a whole command may be quoted
    return f"{match['name']}{match['join']}{quote}{inner}{quote}"


def _without_login(match: re.Match[str]) -> str:
    plain_user = ":" not in match["login"] and match["scheme"].lower() not in {"http://", "https://"}
    return match[0] if plain_user else f"{match['scheme']}{HIDDEN}@"


def _is_secret(name: str, value: str) -> bool:
    """Tell whether ``value`` is a secret by the name it is given to: ``hub_token``, ``--api-key``, ``dbPassword``."""
    parts = [part.lower() for part in _PART.findall(name)]
    if not parts or not value:
        return False
    last, previous = parts[-1], parts[-2] if len(parts) > 1 else ""
    if last in _ALWAYS_SECRET:
        return value != HIDDEN
    if _HARMLESS.fullmatch(value):
        return False
    if last == "key":
        return previous in _SECRET_KEYS
    return last in _SECRET_WORDS and not (last == "token" and previous in _TOKENS_OF_TEXT)
