"""How far a training is: a line on a terminal, a bar in a notebook, nothing elsewhere."""

import sys
import time

# Seconds between two pictures: more often than this nobody sees.
_EVERY = 0.1


def progress_of(asked, quiet):
    """What shows progress; ``asked`` is True, False, or None to decide by who watches."""
    if quiet or asked is False:
        return Silent()
    if _in_notebook():
        return Notebook()
    if asked or sys.stderr.isatty():
        return Terminal()
    return Silent()


def _in_notebook():
    shell = sys.modules.get("IPython")
    shell = shell.get_ipython() if shell else None
    return shell is not None and hasattr(shell, "kernel")


class Silent:
    """Shows nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def expect(self, epochs):
        """There will be so many epochs, or fewer."""

    def show(self, event):
        """An epoch is done."""

    def note(self, text):
        """Something worth knowing was said."""

    def close(self):
        """Nothing more will be shown."""


class Terminal(Silent):
    """One line that is written over and over."""

    def __init__(self):
        self._epochs, self._next, self._last = 0, 0.0, None

    def expect(self, epochs):
        self._epochs = epochs

    def show(self, event):
        self._last = event
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            self._write(event)

    def _write(self, event):
        done = event["epoch"] / max(self._epochs, 1)
        bar = "█" * round(24 * done)
        print(f"\r{bar:24} {event['epoch']}/{self._epochs}  {in_words(event)}\x1b[K", end="",
              file=sys.stderr, flush=True)

    def note(self, text):
        print(f"\r\x1b[Knote: {text}", file=sys.stderr)

    def close(self):
        if self._last is not None:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class Notebook(Silent):
    """A bar and the curve so far, drawn again as epochs end."""

    def __init__(self):
        self._epochs, self._next, self._events, self._handle = 0, 0.0, [], None

    def expect(self, epochs):
        self._epochs = epochs

    def show(self, event):
        self._events.append(event)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 3 * _EVERY
            self._draw()

    def _draw(self):
        from IPython.display import HTML, display

        from ._figure import live

        page = HTML(live(self._events, self._epochs))
        if self._handle is None:
            self._handle = display(page, display_id=True)
        else:
            self._handle.update(page)

    def note(self, text):
        print(f"note: {text}", file=sys.stderr)

    def close(self):
        if self._events:
            self._draw()


def in_words(event):
    """An epoch in a few words."""
    scores = "".join(f"  {part} {event[part]:.4f}" for part in ("train", "val")
                     if event.get(part) is not None)
    loss = event.get("loss")
    return f"loss {'?' if loss is None else format(loss, '.4f')}{scores}  {event['ms']:.2f} ms"
