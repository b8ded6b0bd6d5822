"""``lacis.train``: the command's training inside Python, and what comes of it."""

import json
import tempfile
import time
from pathlib import Path

import numpy as np

from . import _lacis
from ._flags import flags_of
from ._graphs import Graph
from ._model import Model
from ._progress import progress_of

# Seconds between looks at what the training says, and for which one that was stopped is awaited.
_LOOK, _PATIENCE = 0.05, 0.6
_COLUMNS = ("epoch", "loss", "train", "val", "ms")


class Plan:
    """What the planner chose: ``id``, ``formula``, ``predicted_epoch_ms``, ``peak_bytes``."""

    def __init__(self, event):
        self.id = event.get("id")
        self.formula = event.get("formula")
        self.predicted_epoch_ms = event.get("predicted_epoch_ms")
        self.peak_bytes = event.get("peak_bytes")
        self.plan_ms = event.get("plan_ms")

    def __repr__(self):
        return f"Plan({self.id!r}, {self.formula!r})"

    def __str__(self):
        return f"{self.id}  {self.formula}"


class Run:
    """A training that ended, or was stopped.

    ``history`` is a dict of arrays, one number per epoch (``epoch``, ``loss``, ``train``, ``val``,
    ``ms``; NaN where nothing was measured); ``summary`` is what ``lacis train --json`` says at the
    end; ``plan`` what the planner chose; ``model`` the weights of the best epoch, ready to predict.
    """

    def __init__(self, events, training=None, folder=None, keep=None, graph=None):
        self._events, self._training, self._keep = events, training, keep
        self._folder, self._graph = folder, graph
        self.interrupted = False
        self._model = None

    @property
    def history(self):
        """A dict of arrays, one number per epoch."""
        epochs = [event for event in self._events if event["event"] == "epoch"]
        # Of several runs, the last.
        starts = [at for at, event in enumerate(epochs) if event["epoch"] == 1]
        epochs = epochs[starts[-1]:] if starts else epochs
        return {name: np.array([np.nan if event.get(name) is None else event[name]
                                for event in epochs], dtype=np.int64 if name == "epoch" else float)
                for name in _COLUMNS}

    @property
    def summary(self):
        """What came out: scores, times, memory, plan."""
        event = self._last("done") or self._last("run") or {}
        return {**{key: value for key, value in event.items() if key != "event"},
                "interrupted": self.interrupted}

    @property
    def plan(self):
        """What the planner chose."""
        event = self._last("plan")
        return None if event is None else Plan(event)

    @property
    def notes(self):
        """What else was said."""
        return [event["message"] for event in self._events if event["event"] == "note"]

    @property
    def path(self):
        """The run's folder, or None where nothing was kept."""
        event = self._last("run") or self._last("done") or {}
        found = event.get("run") or self._folder
        return Path(found) if found and Path(found).is_dir() else None

    @property
    def model(self):
        """The weights of the best epoch."""
        if self._model is None:
            if self._training is not None:
                self._finish()
            if self.path is None:
                raise ValueError("nothing was kept of this run; train without no_save=True")
            self._model = Model(self.path, self._keep, self._graph)
        return self._model

    def _finish(self):
        """Waits for a training that was stopped to write what it leaves."""
        while (lines := self._training.events(1.0)) is not None:
            self._events += map(json.loads, lines)
        self._training.join()
        self._training = None

    def _last(self, name):
        return next((event for event in reversed(self._events) if event["event"] == name), None)

    def __repr__(self):
        summary, count = self.summary, len(self.history["epoch"])
        scores = ", ".join(f"{part} {summary[part]:.4f}" for part in ("test", "val")
                           if summary.get(part) is not None)
        stopped = ", interrupted" * self.interrupted
        return f"Run({count} epochs, {scores or 'no scores'}{stopped})"

    def _repr_html_(self):
        from ._figure import page

        return page(self)


def train(graph, model=None, hidden=None, epochs=None, *, out=None, progress=None, **flags):
    """Trains a network on a graph and returns the :class:`Run`.

    ``graph`` is a :class:`Graph`, a PyG ``Data``, or what :func:`load_graph` takes. All flags of
    ``lacis train`` are arguments by the same names and with the same defaults (``model="gcn"``,
    ``hidden=64``, ``epochs=200`` unless a data set has its own): ``layers``, ``heads``,
    ``dropout``, ``lr``, ``weight_decay``, ``seed``, ``eval_every``, ``patience``, ``split``,
    ``approx``, ``threads``, …; ``lacis train --help`` lists them. ``out`` names the folder that
    keeps the run; without it a temporary one does, for as long as the run or its model is used.
    ``resume=`` goes on with the run of a folder, as it was begun: what is said besides must be the
    same. ``val_data`` and ``test_data`` may be graphs, too, which are written beside ``out``.

    Ctrl-C ends the training within a second; the run so far is returned, ``run.interrupted`` is
    true, and ``run.history`` has all finished epochs. A second Ctrl-C is Python's.
    """
    graph, named = _graph_of(graph)
    # A temporary folder lives as long as the run.
    keep = tempfile.TemporaryDirectory(prefix="lacis-")
    temporary, resume = Path(keep.name) / "run", flags.get("resume")
    if out is None and not flags.get("no_save") and not resume:
        out = temporary
    beside = Path(out or resume or temporary)
    for name in ("val_data", "test_data"):
        # An ending would be a format.
        place = beside.with_name(f"{beside.name}-{name}".replace(".", "-"))
        flags[name] = _by_name(flags.get(name), place, bool(resume))
    quiet = bool(flags.pop("quiet", False))
    arguments = {"model": model, "hidden": hidden, "epochs": epochs, "out": out, **flags}
    typed = flags_of("train", arguments) + ([named] if named else [])
    events = []
    training = _lacis.Training(typed, graph)
    run = Run(events, training, resume, keep, graph)
    with progress_of(progress, quiet) as bar:
        _follow(run, events, bar)
    return run


def _graph_of(graph):
    """The graph's data, or the name of one that is to be opened."""
    if isinstance(graph, Graph):
        return graph._data, None
    if isinstance(graph, (str, Path)):
        return None, str(graph)
    if hasattr(graph, "edge_index") or hasattr(graph, "adj_t"):
        return Graph.from_pyg(graph)._data, None
    raise TypeError(f"train() cannot take {type(graph).__name__} for a graph")


def _by_name(graph, path, goes_on):
    """What the command can open: a graph of this program's is written first, unless a run that goes
    on has written it."""
    if graph is None or isinstance(graph, (str, Path)):
        return graph
    data, _ = _graph_of(graph)
    if not (goes_on and path.exists()):
        data.save(path)
    return path


def _follow(run, events, bar):
    """Collects what the training says until it ends, or somebody wants it to."""
    training = run._training
    try:
        while (lines := training.events(_LOOK)) is not None:
            _collect(lines, events, bar)
    except KeyboardInterrupt:
        training.stop()
        if not any(event["event"] == "epoch" for event in events):
            raise
        run.interrupted = True
        _await_the_end(run, events, bar)
        bar.note("stopped; the run has all finished epochs")
        return
    run._training = None
    try:
        training.join()
    except ValueError as error:
        raise _misuse(error) from None


def _collect(lines, events, bar):
    for line in lines:
        event = json.loads(line)
        events.append(event)
        if event["event"] == "start":
            bar.expect(_found(event.get("config"), "epochs") or 0)
        elif event["event"] == "epoch":
            bar.show(event)
        elif event["event"] == "note":
            bar.note(event["message"])


def _found(tree, key):
    """The number under a key, anywhere in a tree."""
    if not isinstance(tree, dict):
        return None
    if isinstance(tree.get(key), int):
        return tree[key]
    return next((found for part in tree.values() if (found := _found(part, key))), None)


def _await_the_end(run, events, bar):
    """Gives a stopped training a moment; where an epoch takes longer, it ends by itself."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        lines = run._training.events(_LOOK)
        if lines is None:
            run._training.join()
            run._training = None
            return
        _collect(lines, events, bar)


def _misuse(error):
    """An unknown argument is a TypeError, as of any function."""
    text = str(error)
    if "unexpected argument" in text:
        said = "train: unexpected argument '--"
        return TypeError(text.replace(said, "train() has no argument '"))
    return error


def load_model(run):
    """The model of a run: its folder, or the :class:`Run` that :func:`train` returned."""
    return run.model if isinstance(run, Run) else Model(Path(run))

