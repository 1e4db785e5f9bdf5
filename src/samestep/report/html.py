"""The drill as one offline page: tables that need no script, charts that need no network."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import re
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
import msgspec

from . import view
from .charts import chart_specs
from .crash import groups as crash
from .crash import words
from .files import encode_result
from .series import side_by_side

if TYPE_CHECKING:
    from samestep.drill.result import DrillResult

SIZE_LIMIT_BYTES = 1_500_000
"""Largest page; charts drawn ahead and then the embedded series are left out to stay under it."""

_PACKED = "application/gzip"
"""Type of the embedded result when it is compressed, base64."""

_START = """
for (const chart of document.querySelectorAll("[data-chart]")) {
  const spec = JSON.parse(document.getElementById("spec-" + chart.dataset.chart).textContent);
  vegaEmbed(chart, spec, { renderer: "svg", actions: false, ast: true }).catch(() => {});
}
const link = document.getElementById("download");
const stored = document.getElementById("drill-json");
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
""".replace("PACKED", _PACKED)


def render_html(result: DrillResult) -> str:
    """Render the drill as a single HTML file that loads nothing from anywhere.

    To stay within 1.5 MB the embedded result is compressed, then charts drawn ahead are left out, then the per-step
    numbers of the embedded result.
    """
    specs = chart_specs(result)
    drawings = {name: _drawn(name, spec) for name, spec in specs.items()}
    smaller = _without_series(result)
    page = _render(result, specs, embedded_json(encode_result(result).decode()), drawings)
    for kept, drawn in ((result, drawings), (result, {}), (smaller, {})):
        if len(page.encode()) <= SIZE_LIMIT_BYTES:
            break
        page = _render(result, specs, _packed(kept), drawn)
    return page


def _packed(result: DrillResult) -> str:
    return base64.b64encode(gzip.compress(encode_result(result), 9, mtime=0)).decode()


def _render(result: DrillResult, specs: dict[str, Any], raw: str, drawings: dict[str, str]) -> str:
    template, script = _environment().get_template("page.html.j2"), _script()
    return template.render(
        result=result,
        verdict=view.verdict(result),
        view=view,
        crash=crash,
        told=words.told,
        saves=crash.summaries(result),
        side_by_side=side_by_side,
        provenance=flattened(result.provenance),
        started=_moment(result.started_unix),
        specs={name: embedded_json(json.dumps(spec)) for name, spec in specs.items()},
        drawings=drawings,
        raw=raw,
        raw_type="application/json" if raw.startswith("{") else _PACKED,
        script=script,
        policy=_policy(script),
    )


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("samestep.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["seconds"] = _duration
    environment.filters["bytes"] = _size
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    environment.filters["command"] = view.command_line
    environment.globals["style"] = (
        resources.files(__package__).joinpath("templates/style.css").read_text("utf-8")
    )
    return environment


@functools.cache
def _script() -> str:
    import vl_convert

    return str(vl_convert.javascript_bundle(_START)).replace("</script", "<\\/script")


def _policy(script: str) -> str:
    """Content security policy: this very script, inline styles, and nothing from outside."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def _drawn(name: str, spec: dict[str, Any]) -> str:
    """Draw a chart ahead, for readers without scripts.

    Ids are kept apart between the charts of a page. Labels of single marks are left out, since the figure
    has one.
    """
    import vl_convert

    svg = str(vl_convert.vegalite_to_svg(spec))
    svg = re.sub(r' (aria-label|aria-roledescription|role)="[^"]*"', "", svg)
    return re.sub(r'(id="|url\(#)', rf"\g<1>{name}-", svg)


def embedded_json(text: str) -> str:
    """Make JSON safe inside a script element: no character that could end it or open a comment."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


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


def _without_series(result: DrillResult) -> DrillResult:
    control = result.control and msgspec.structs.replace(result.control, series=[])
    scenarios = [msgspec.structs.replace(scenario, series=[]) for scenario in result.scenarios]
    return msgspec.structs.replace(result, control=control, scenarios=scenarios)


def _moment(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M UTC") if unix else ""


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def _size(size: float) -> str:
    units = ["B", "KB", "MB", "GB"]
    power = min(len(units) - 1, (len(str(int(size))) - 1) // 3)
    return f"{size / 1000**power:.{1 if power else 0}f} {units[power]}"
