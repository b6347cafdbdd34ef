"""The look of the report: its building blocks, and one HTML page that needs nothing from the network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jinja2 import Environment
from markupsafe import Markup, escape

Tone = Literal["good", "bad", "open", ""]

# Plotly's bundle of scatter, bar and pie: a quarter of the whole. Its version is that of the plotly package, whose
# figures it draws (tests/unit/test_report.py); `npm pack plotly.js-basic-dist-min@VERSION` brings another.
PLOTLY_JS = Path(__file__).parent / "assets" / "plotly-basic.min.js"


@dataclass(frozen=True)
class Numbers:
    """A table as shown: texts, which columns are numeric, and what was left out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[str] = frozenset()
    left_out: str = ""


@dataclass(frozen=True)
class Part:
    """A chart with its numbers, or numbers alone (``figure`` empty)."""

    id: str
    title: str
    table: Numbers
    figure: Markup | str = ""
    note: str = ""


@dataclass(frozen=True)
class Section:
    """One section of the page."""

    id: str
    title: str
    verdict: str = ""
    tone: Tone = ""
    paragraphs: tuple[str, ...] = ()
    code: str = ""
    missing: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Tile:
    """One number at the top of the page."""

    label: str
    value: str
    tone: Tone = ""


def page(title: str, description: str, covers: str, tiles: Sequence[Tile], sections: Sequence[Section]) -> str:
    """The whole page; everything that is not :class:`Markup` is escaped."""
    charts = any(part.figure for section in sections for part in section.parts)
    scripts = [PLOTLY_JS.read_text(encoding="utf-8"), DRAW_JS] if charts else []
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["code"] = _code
    return environment.from_string(TEMPLATE).render(
        title=title,
        description=description,
        covers=covers,
        tiles=tiles,
        sections=sections,
        scripts=[Markup(script) for script in scripts],
        policy=_policy(scripts),
    )


def _policy(scripts: Sequence[str]) -> Markup:
    """What the page may do: run these scripts and no others, load nothing, send nothing."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"
    rest = "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
    return Markup(f"default-src 'none'; script-src {allowed}; {rest}")


def _code(text: str) -> Markup:
    """Escaped text, with what stands in backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


# Draws the charts, in light and in dark.
DRAW_JS = """
(function () {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function draw() {
    const ink = color("--ink"), muted = color("--muted"), line = color("--line"), card = color("--card");
    for (const source of document.querySelectorAll("script[data-chart]")) {
      const figure = JSON.parse(source.textContent), target = document.getElementById(source.dataset.chart);
      for (const trace of figure.data) if (trace.meta === "reference") trace.line.color = ink;
      const axis = {gridcolor: line, linecolor: line, zerolinecolor: line, tickcolor: line, automargin: true};
      const layout = Object.assign({}, figure.layout, {
        paper_bgcolor: card, plot_bgcolor: card, font: {family: "system-ui, sans-serif", size: 13, color: ink},
        xaxis: Object.assign({}, axis, figure.layout.xaxis), yaxis: Object.assign({}, axis, figure.layout.yaxis),
        hoverlabel: {bgcolor: card, bordercolor: muted, font: {color: ink}},
      });
      Plotly.react(target, figure.data, layout, {responsive: true, displayModeBar: false});
    }
  }
  draw();
  dark.addEventListener("change", draw);
})();
"""

TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{ policy }}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{ title }} · Tidegate report</title>
<style>
:root {
  --page: #f6f7f9; --card: #ffffff; --ink: #1d2329; --muted: #59636e; --line: #dde1e6;
  --good: #1a7f4b; --bad: #b3261e; --open: #7a5b00; --link: #1a5fb4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12151a; --card: #1b2027; --ink: #e6e9ed; --muted: #a2acb8; --line: #343b45;
    --good: #5fcf95; --bad: #ff8a80; --open: #e6c35c; --link: #8ab8ff;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main, header, nav, footer { max-width: 78rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0; }
h2 { font-size: 1.25rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .35rem 0; max-width: 46rem; }
a { color: var(--link); }
.muted, footer { color: var(--muted); font-size: .9rem; }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
section { padding: 1rem; margin: 1rem 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem; margin: 1rem 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .75rem; }
.tile b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .open { color: var(--open); }
.verdict { font-weight: 600; }
.scroll { overflow-x: auto; max-height: 26rem; overflow-y: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; min-width: 100%; }
th, td { padding: .3rem .5rem; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { position: sticky; top: 0; background: var(--card); white-space: normal; vertical-align: bottom; }
td.number, th.number { text-align: right; }
td.wide { white-space: normal; min-width: 9rem; }
.empty { border-left: 3px solid var(--open); padding: .25rem .75rem; }
pre { background: var(--page); border: 1px solid var(--line); border-radius: 6px; padding: .75rem; overflow-x: auto; }
details > summary { cursor: pointer; color: var(--link); padding: .25rem 0; }
.chart { width: 100%; height: 280px; }
</style>
</head>
<body>
<header>
  <h1>{{ title }}</h1>
  {% if description %}<p>{{ description }}</p>{% endif %}
  <p class="muted">{{ covers }} Times are UTC.</p>
  <div class="tiles">
  {% for tile in tiles %}
    <div class="tile"><b class="{{ tile.tone }}">{{ tile.value }}</b>{{ tile.label }}</div>
  {% endfor %}
  </div>
</header>
<nav aria-label="Sections"><ul>
{% for section in sections %}
  <li><a href="#{{ section.id }}">{{ section.title.removeprefix("Query ") }}</a></li>
{% endfor %}
</ul></nav>
<main>
{% for section in sections %}
<section id="{{ section.id }}">
  <h2>{{ section.title }}</h2>
  {% if section.verdict %}<p class="verdict {{ section.tone }}">{{ section.verdict }}</p>{% endif %}
  {% for paragraph in section.paragraphs %}<p>{{ paragraph | code }}</p>{% endfor %}
  {% if section.code %}<details><summary>The query</summary><pre>{{ section.code }}</pre></details>{% endif %}
  {% for sentence in section.missing %}<p class="empty">{{ sentence | code }}</p>{% endfor %}
  {% for part in section.parts %}
    <h3>{{ part.title }}</h3>
    {% if part.note %}<p class="muted">{{ part.note }}</p>{% endif %}
    {% if part.figure %}
    <div class="chart" id="{{ part.id }}" role="img" aria-label="{{ part.title }}; numbers below"></div>
    <script type="application/json" data-chart="{{ part.id }}">{{ part.figure }}</script>
    {% endif %}
    {% if part.figure %}<details><summary>Numbers</summary>{% endif %}
    <div class="scroll" tabindex="0"><table>
      <thead><tr>{% for column in part.table.columns %}<th scope="col"
        {%- if column in part.table.numeric %} class="number"{% endif %}>{{ column }}</th>{% endfor %}</tr></thead>
      <tbody>
      {% for row in part.table.rows %}<tr>{% for cell in row %}<td
        {%- if part.table.columns[loop.index0] in part.table.numeric %} class="number"
        {%- elif cell[:1] == "✓" %} class="good"{% elif cell[:1] == "✗" %} class="bad"
        {%- elif cell[:1] == "…" %} class="open"
        {%- elif cell|length > 24 %} class="wide"{% endif %}>{{ cell }}</td>{% endfor %}</tr>
      {% endfor %}
      </tbody>
    </table></div>
    {% if part.table.left_out %}<p class="muted">{{ part.table.left_out }}</p>{% endif %}
    {% if part.figure %}</details>{% endif %}
  {% endfor %}
</section>
{% endfor %}
</main>
<footer><p>Made by <code>tidegate report</code> from the warehouse's tables; needs no network.</p></footer>
{% for script in scripts %}
<script>{{ script }}</script>
{% endfor %}
</body>
</html>
"""
