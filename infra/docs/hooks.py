"""mkdocs' hooks: pages that stand elsewhere in the repository, generated parts, and links that hold in both places.

Every page is written once, where it belongs: a pipeline's README beside the pipeline, a decision in
``infra/decisions``. Links in it are relative to the repository, so that they work while browsing it; here they become
links between pages. A link to a file that is no page becomes its bare text; one to nothing is left alone, and fails
the build.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from infra.docs.reference import with_generated
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = "dags/pipelines/flights"
# File of the repository → page of the site.
ELSEWHERE = {
    "README.md": "index.md",
    f"{FLIGHTS}/README.md": "tutorial/flights.md",
    f"{FLIGHTS}/OUTAGES.md": "how-to/outages.md",
    "infra/sql/README.md": "how-to/sql.md",
    "infra/containers/README.md": "how-to/containers.md",
    "infra/kubernetes/README.md": "how-to/kubernetes.md",
    "dbt/README.md": "reference/marts.md",
    "GLOSSARY.md": "reference/glossary.md",
    "ARCHITECTURE.md": "explanation/architecture.md",
    "SECURITY.md": "explanation/security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    **{
        f"infra/decisions/{path.name}": f"explanation/decisions/{path.name}"
        for path in sorted((ROOT / "infra" / "decisions").glob("*.md"))
    },
    **{
        f"infra/benchmarks/{path.parent.name}/README.md": f"explanation/measurements/{path.parent.name}.md"
        for path in sorted((ROOT / "infra" / "benchmarks").glob("*/README.md"))
    },
}
# A folder stands for its first page, as README.md does while browsing.
FOLDERS = {"infra/decisions": "explanation/decisions/0001-passes-over-many-intervals.md"}

_FENCE = re.compile(r"^(```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace a folder of the repository in the navigation by the pages of its files."""
    config.nav = _with_folders(config.nav)
    return config


def _with_folders(nav: Any) -> Any:
    if isinstance(nav, list):
        return [_with_folders(item) for item in nav]
    if isinstance(nav, dict):
        return {title: _with_folders(item) for title, item in nav.items()}
    return [page for source, page in ELSEWHERE.items() if source.startswith(f"{nav}/")] if nav in FOLDERS else nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere."""
    for source, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the generated parts in place, and turn links between files of the repository into links between pages."""
    sources = {target: source for source, target in ELSEWHERE.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]
    parts = _FENCE.split(with_generated(markdown))
    return "".join(part if part.startswith("```") else linked(part, source, page.file.src_uri) for part in parts)


def linked(text: str, source: str, page: str) -> str:
    """The text of a page with its links as the site needs them.

    ``source`` is where the text stands in the repository, ``page`` where it stands on the site.

    >>> linked("See [why](infra/decisions/0016-object-stores.md#x).", "README.md", "index.md")
    'See [why](explanation/decisions/0016-object-stores.md#x).'
    >>> linked("The [code](../Makefile) and [home](../README.md).", "docs/changelog.md", "changelog.md")
    'The code and [home](index.md).'
    """

    def replaced(match: re.Match[str]) -> str:
        bang, label, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        on_site = ELSEWHERE.get(meant) or FOLDERS.get(meant)
        if on_site is None and meant.startswith("docs/") and (ROOT / meant).is_file():
            on_site = meant.removeprefix("docs/")
        if on_site is None:
            return label if (ROOT / meant).exists() else match[0]
        relative = os.path.relpath(on_site, posixpath.dirname(page) or ".")
        return f"{bang}[{label}]({relative}{hash_}{anchor})"

    return _LINK.sub(replaced, text)
