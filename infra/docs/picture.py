"""The picture of the README: the top of the report, as it stands in the demo's warehouse.

    make demo
    python -m infra.docs.picture .tidegate/warehouse/flights/_docs/report.html docs/images/report.png

Needs Debian's ``chromium`` (or another one that TIDEGATE_CHROMIUM names). The picture leaves out the report's table of
contents, ends with the last query that has a promise, and is reduced to 128 colours, so that it stays small.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH, MARGIN = 1280, 8


def draw(page_file: Path, chromium: str) -> bytes:
    """The page from its top to the last promise of its first section, as PNG."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 1000}, color_scheme="light")
        page.goto(page_file.resolve().as_uri())
        page.add_style_tag(content="nav { display: none; } .scroll { max-height: none; }")
        box = (
            page.locator("section")
            .first.locator("tr:has(td.good), tr:has(td.bad), tr:has(td.open)")
            .last.bounding_box()
        )
        assert box is not None
        height = box["y"] + box["height"] + MARGIN
        png = page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": height}, full_page=True)
        browser.close()
    small = BytesIO()
    Image.open(BytesIO(png)).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


def main() -> int:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    chromium = os.environ.get("TIDEGATE_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        parser.error("no chromium: apt-get install chromium, or set TIDEGATE_CHROMIUM")
    if not arguments.report.is_file():
        parser.error(f"there is no {arguments.report}: make it with make demo or tidegate report")
    arguments.picture.write_bytes(draw(arguments.report, chromium))
    print(f"{arguments.picture}: {arguments.picture.stat().st_size / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
