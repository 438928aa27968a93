"""matplotlib's figures as SVG to stand inside an HTML page.

The colours in the SVG are names of CSS variables, so that the page chooses them, for light and
dark; its text is text, in the page's fonts. Draw under ``matplotlib.rc_context(STYLE)``.
"""

import hashlib
import html
import io
import re
from typing import Any

from matplotlib.figure import Figure

# Stand-ins for the page's variables: matplotlib accepts no `var(--ink)`.
INK, MUTED, GRID = "#010101", "#020202", "#030303"
SERIES = tuple(f"#0a0a{i:02x}" for i in range(10, 16))
VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid"} | {
    colour: f"--run-{i}" for i, colour in enumerate(SERIES)
}
DASHES = ("-", (0, (5, 2)), (0, (5, 2, 1, 2)), (0, (1.5, 1.5)))

WIDTH = 5.0  # inches: near a phone's width at the font size below
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cpt_jax",  # the same ids each time
    "text.parse_math": False,
    "font.size": 10,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "ytick.major.size": 0,
    "xtick.major.size": 3,
    "text.color": INK,
    "lines.linewidth": 1.7,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


def element(figure: Figure, title: str) -> str:
    """Returns an ``<svg>`` element: the page's colours, ids of its own, no size.

    Args:
      figure: drawn with the colours above.
      title: what a screen reader says; also keeps the element's ids apart from other figures'.
    """
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
    )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    prefix = "f" + hashlib.sha256(title.encode()).hexdigest()[:8]
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    view = re.search(r'viewBox="[^"]*"', svg)
    assert view is not None
    opening = f'<svg {view[0]} role="img" aria-label="{html.escape(title)}">'
    return opening + svg[svg.index(">") + 1 :]
