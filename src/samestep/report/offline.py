"""What every page shares: one file that loads nothing from anywhere, readable without its script."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import re
from importlib import resources
from typing import Any

import jinja2

from samestep.contract.sizes import readable_bytes

from . import view

SIZE_LIMIT_BYTES = 1_500_000
"""Largest page; what it can do without is left out to stay under it."""

PACKED = "application/gzip"
"""Type of the embedded result when it is compressed, base64."""

_START = """
for (const chart of document.querySelectorAll("[data-chart]")) {
  const spec = JSON.parse(document.getElementById("spec-" + chart.dataset.chart).textContent);
  vegaEmbed(chart, spec, { renderer: "svg", actions: false, ast: true }).catch(() => {});
}
const link = document.getElementById("download");
const stored = document.getElementById("stored-result");
const unpacked = async () => {
  if (stored.type !== "PACKED") return stored.textContent;
  const bytes = Uint8Array.from(atob(stored.textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};
unpacked().then((raw) => {
  link.href = URL.createObjectURL(new Blob([raw], { type: "application/json" }));
  document.getElementById("raw").addEventListener("toggle", () => {
    document.getElementById("raw-view").textContent = raw;
  }, { once: true });
}).catch(() => {});
""".replace("PACKED", PACKED)


def bounded_page(template: str, specs: dict[str, Any], whole: bytes, smaller: bytes, **shown: Any) -> str:
    """Render a page with its charts and the result it shows, which can be had from it again.

    To stay within ``SIZE_LIMIT_BYTES`` the embedded result is compressed, then charts drawn ahead are left out, then
    the smaller result is embedded.

    Args:
        template: name of the page's template.
        specs: of its charts, by name.
        whole: JSON of the result.
        smaller: the same without what may be left out.
        shown: what else the template uses.
    """
    page = environment().get_template(template)
    shown |= {
        "specs": {name: embedded_json(json.dumps(spec)) for name, spec in specs.items()},
        "drawings": {name: drawn(name, spec) for name, spec in specs.items()},
        "script": script(),
        "policy": policy(),
    }
    text = page.render(shown, raw=embedded_json(whole.decode()), raw_type="application/json")
    for data, drawings in ((whole, shown["drawings"]), (whole, {}), (smaller, {})):
        if len(text.encode()) <= SIZE_LIMIT_BYTES:
            break
        text = page.render(shown | {"drawings": drawings}, raw=packed(data), raw_type=PACKED)
    return text


@functools.cache
def environment() -> jinja2.Environment:
    """Return the templates of all pages, with the filters that they use."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("samestep.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["seconds"] = _duration
    found.filters["bytes"] = readable_bytes
    found.filters["capitalize_first"] = capitalized
    found.filters["command"] = view.command_line
    found.globals["style"] = resources.files(__package__).joinpath("templates/style.css").read_text("utf-8")
    return found


@functools.cache
def script() -> str:
    """Return the JavaScript that draws the charts and hands out the result."""
    import vl_convert

    return str(vl_convert.javascript_bundle(_START)).replace("</script", "<\\/script")


def prepare() -> None:
    """Load what charts are drawn with, so that whoever has a page to make later need not wait for it."""
    import altair  # noqa: F401, ICN001

    script()


def policy() -> str:
    """Content security policy: this very script, inline styles, and nothing from outside."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def drawn(name: str, spec: dict[str, Any]) -> str:
    """Draw a chart ahead, for readers without scripts.

    Ids are kept apart between the charts of a page. Labels of single marks are left out, since the figure
    has one.
    """
    import vl_convert

    svg = str(vl_convert.vegalite_to_svg(spec))
    svg = re.sub(r' (aria-label|aria-roledescription|role)="[^"]*"', "", svg)
    return re.sub(r'(id="|url\(#)', rf"\g<1>{name}-", svg)


def packed(data: bytes) -> str:
    """Compress a result so that it can stand in a page, the same bytes every time."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def embedded_json(text: str) -> str:
    """Make JSON safe inside a script element: no character that could end it or open a comment."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def capitalized(text: str) -> str:
    """Begin a sentence with a capital letter, and leave the rest as it is."""
    return text[:1].upper() + text[1:]


def flattened(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested values as dotted names and texts, in their order."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, dict) and value.keys() == {"value", "origin"}:
            rows.append((f"{prefix}{name}", f"{_text(value['value'])} ({value['origin']})"))
        elif isinstance(value, dict):
            rows += flattened(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", _text(value)))
    return rows


def _text(value: object) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value)
    return str(value)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
