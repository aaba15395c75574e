"""A model as notebooks show it."""

from __future__ import annotations

import html
from collections.abc import Sequence

from dtdr.data.tools import Tool

_SHOWN_TOOLS = 20


def not_fitted_html(representation: str) -> str:
    """A model's ``repr``, escaped."""
    return f"<code>{html.escape(representation)}</code>, not fitted yet"


def fitted_html(
    representation: str, tools: Sequence[Tool], demonstrations: int, *, calibrated: bool
) -> str:
    """What was learned from and the first tools, all texts escaped.

    Args:
        representation: the model's ``repr``.
        tools: the vocabulary, without the end of plan.
        demonstrations: how many it was fitted on.
        calibrated: whether its probabilities are calibrated.
    """
    rows = "".join(
        f"<tr><td style='text-align:left'>{html.escape(tool.name)}</td>"
        f"<td style='text-align:left'>{html.escape(tool.description[:80])}</td></tr>"
        for tool in tools[:_SHOWN_TOOLS]
    )
    rest = len(tools) - _SHOWN_TOOLS
    more = f"<p>and {rest:,} more</p>" if rest > 0 else ""
    return (
        f"<p><code>{html.escape(representation)}</code></p><p>learned from "
        f"{demonstrations:,} demonstrations of {len(tools):,} tools; calibrated: "
        f"{'yes' if calibrated else 'no'}</p><table><thead><tr>"
        "<th style='text-align:left'>tool</th><th style='text-align:left'>what it does</th>"
        f"</tr></thead><tbody>{rows}</tbody></table>{more}"
    )
