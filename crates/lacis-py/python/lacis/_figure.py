"""A figure of a training's curve, as SVG: no plotting library is needed."""

from html import escape

import numpy as np

from ._progress import in_words

_WIDTH, _HEIGHT, _MARGIN = 560, 220, 34
_COLOURS = {"loss": "#c0392b", "train": "#7f8c8d", "val": "#2471a3"}


def page(run):
    """The summary and the curve of a run."""
    summary = run.summary
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td style='text-align:left'>{escape(_text(value))}</td></tr>"
        for name, value in (("metric", summary.get("metric")), ("test", summary.get("test")),
                            ("val", summary.get("val")), ("best epoch", summary.get("best_epoch")),
                            ("epoch, ms", summary.get("epoch_ms")), ("plan", str(run.plan or "")))
        if value not in (None, ""))
    return f"<div>{curve(run.history)}<table>{rows}</table></div>"


def live(events, epochs):
    """A bar, a line of words and the curve so far."""
    last = events[-1]
    share = 100 * last["epoch"] / max(epochs, 1)
    history = {name: np.array([np.nan if event.get(name) is None else event[name]
                               for event in events], dtype=float)
               for name in ("epoch", "loss", "train", "val")}
    bar = (f"<div style='background:#ddd;width:{_WIDTH}px;height:8px'>"
           f"<div style='background:#2471a3;width:{share:.1f}%;height:8px'></div></div>")
    words = f"<code>{last['epoch']}/{epochs}  {escape(in_words(last))}</code>"
    return f"<div>{bar}{words}<br>{curve(history)}</div>"


def curve(history):
    """Loss on its own scale, scores from 0 to 1 on theirs, over the epochs."""
    epochs = history["epoch"]
    if len(epochs) == 0:
        return ""
    lines, names = [], []
    for at, (name, colour) in enumerate(_COLOURS.items()):
        numbers = np.asarray(history[name], dtype=float)
        if np.isfinite(numbers).any():
            low, high = (0.0, np.nanmax(numbers)) if name == "loss" else (0.0, 1.0)
            lines.append(_line(epochs, numbers, (low, high), colour))
            names.append(f"<text x='{_MARGIN + 70 * at}' y='14' fill='{colour}'>{name}</text>")
    frame = (f"<rect x='{_MARGIN}' y='20' width='{_WIDTH - 2 * _MARGIN}' "
             f"height='{_HEIGHT - 20 - _MARGIN}' fill='none' stroke='#bbb'/>")
    ends = (f"<text x='{_MARGIN}' y='{_HEIGHT - 14}'>{int(epochs[0])}</text>"
            f"<text x='{_WIDTH - _MARGIN}' y='{_HEIGHT - 14}' text-anchor='end'>"
            f"epoch {int(epochs[-1])}</text>")
    return (f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{_HEIGHT}' "
            f"font-family='sans-serif' font-size='12'>{frame}{''.join(lines)}{''.join(names)}"
            f"{ends}</svg>")


def _line(epochs, numbers, bounds, colour):
    low, high = bounds
    known = np.isfinite(numbers)
    # More points than pixels would only make the file large.
    step = max(1, known.sum() // _WIDTH)
    x, y = np.asarray(epochs, dtype=float)[known][::step], numbers[known][::step]
    span = max(float(epochs[-1]) - float(epochs[0]), 1.0)
    x = _MARGIN + (x - float(epochs[0])) / span * (_WIDTH - 2 * _MARGIN)
    height = _HEIGHT - 20 - _MARGIN
    y = 20 + height - np.clip((y - low) / max(high - low, 1e-12), 0, 1) * height
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y))
    return f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='1.5'/>"


def _text(value):
    return format(value, ".4g") if isinstance(value, float) else str(value)
