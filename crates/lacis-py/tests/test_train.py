"""Training from Python: the command's names, defaults and numbers; stopping; predictions."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import types

import lacis
import numpy as np
import pytest
from lacis._model import _words_of

DATA = "sbm:n=300,e=3000,classes=4,features=16,seed=1"


@pytest.fixture(scope="module")
def graph():
    return lacis.load_graph(DATA)


@pytest.fixture(scope="module")
def run(graph):
    return lacis.train(graph, model="gcn", hidden=16, epochs=20, seed=3)


def test_a_run_has_history_summary_and_plan(run):
    assert run.history["epoch"].tolist() == list(range(1, 21))
    assert run.history["loss"].dtype == float and run.history["loss"][-1] < run.history["loss"][0]
    assert np.isfinite(run.history["val"]).all()
    assert 0 <= run.summary["test"] <= 1 and run.summary["epochs"] == 20
    assert run.plan.id == run.summary["plan"] and "W1" in run.plan.formula
    assert not run.interrupted and not run.summary["interrupted"]


def test_the_command_gives_the_same_numbers(run):
    command = [sys.executable, "-m", "lacis", "train", DATA, "--hidden", "16", "--epochs", "20",
               "--seed", "3", "--no-save", "--json"]
    # A seed is the data's, too: a generator with a seed of its own keeps it.
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=120)
    events = [json.loads(line) for line in outcome.stdout.splitlines()]
    losses = [event["loss"] for event in events if event["event"] == "epoch"]
    np.testing.assert_array_equal(losses, run.history["loss"])


def test_threads_change_nothing(graph, run):
    again = lacis.train(graph, hidden=16, epochs=20, seed=3, threads=1)
    np.testing.assert_array_equal(again.history["loss"], run.history["loss"])


def test_predictions_are_those_that_were_judged(graph, run):
    labels = run.model.predict(graph)
    (split,) = graph.splits.values()
    test = split["test"]
    assert labels.shape == (300,) and labels.dtype.kind == "i"

    assert np.mean(labels[test] == graph.y[test]) == pytest.approx(run.summary["test"])
    probs = run.model.predict(graph, what="probs")
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(probs.argmax(axis=1), labels)
    logits = run.model.predict(graph, what="logits")
    np.testing.assert_array_equal(logits.argmax(axis=1), labels)


def test_models_are_loaded_from_a_folder(graph, tmp_path):
    run = lacis.train(graph, hidden=8, epochs=5, out=tmp_path / "kept")
    model = lacis.load_model(tmp_path / "kept")
    np.testing.assert_array_equal(model.predict(graph), run.model.predict(graph))
    assert lacis.load_model(run) is run.model
    with pytest.raises(FileNotFoundError):
        lacis.load_model(tmp_path / "nothing")


def test_data_by_name_needs_no_graph_to_predict():
    run = lacis.train(DATA, hidden=8, epochs=5)
    assert run.model.predict().shape == (300,)


def test_a_model_knows_the_graph_that_only_the_program_has(graph):
    named = lacis.Graph.from_edges(graph.edge_index, 300, x=graph.x, y=graph.y, name="karate")
    model = lacis.train(named, hidden=8, epochs=5).model
    np.testing.assert_array_equal(model.predict(), model.predict(named))
    changed = lacis.load_graph("karate", self_loops=True, features=4, classes=2)
    model = lacis.train(changed, hidden=8, epochs=5).model
    np.testing.assert_array_equal(model.predict(what="logits"), model.predict(changed, "logits"))


def test_embeddings_and_some_nodes(graph, run):
    hidden = run.model.predict(what="embeddings")
    assert hidden.shape == (300, 16)
    probs = run.model.predict(what="probs")
    np.testing.assert_array_equal(run.model.predict(what="probs", nodes=[5, 3]), probs[[5, 3]])
    mask = np.zeros(300, bool)
    mask[7] = True
    np.testing.assert_array_equal(run.model.predict(what="probs", nodes=mask), probs[[7]])
    with pytest.raises(ValueError, match="no node 300"):
        run.model.predict(nodes=[1, 300])
    with pytest.raises(ValueError, match="'embeddings'"):
        run.model.predict(what="everything")


def test_weights_can_be_replaced(graph):
    model = lacis.train(graph, hidden=8, epochs=5).model
    words = _words_of(model.path / "model.safetensors")
    state = model.state_dict()
    assert {value.ndim for value in state.values()} <= {1, 2}
    before = model.predict(graph, what="logits")
    model.load_state_dict({name: value * 0 for name, value in state.items()})
    assert not model.predict(graph, what="logits").any()
    model.load_state_dict(state)
    assert words and _words_of(model.path / "model.safetensors") == words
    np.testing.assert_array_equal(model.predict(graph, what="logits"), before)
    with pytest.raises(KeyError):
        model.load_state_dict({})


def test_labels_and_numbers_are_predicted_as_such(graph):
    several = np.eye(4, dtype=np.float32)[graph.y]
    several[::3, 0] = 1
    labels = lacis.Graph.from_edges(graph.edge_index, 300, x=graph.x, y=several)
    model = lacis.train(labels, hidden=8, epochs=5).model
    found = model.predict(labels)
    assert found.shape == (300, 4) and set(np.unique(found)) <= {0, 1}
    probs = model.predict(labels, what="probs")
    np.testing.assert_array_equal(probs > 0.5, found == 1)
    numbers = lacis.Graph.from_edges(graph.edge_index, 300, x=graph.x, y=graph.x[:, :1] * 2)
    model = lacis.train(numbers, hidden=8, epochs=5).model
    assert model.predict(numbers).dtype == np.float32


def test_pyg_data_trains(graph):
    pytest.importorskip("torch_geometric")
    run = lacis.train(graph.to_pyg(), hidden=8, epochs=3)
    assert len(run.history["loss"]) == 3


def test_graphs_of_the_program_judge(graph, tmp_path):
    others = [lacis.load_graph(DATA.replace("seed=1", f"seed={seed}")) for seed in (2, 3)]
    run = lacis.train(graph, hidden=8, epochs=5, val_data=others[0], test_data=others[1])
    judged = np.mean(run.model.predict(others[1]) == others[1].y)
    assert judged == pytest.approx(run.summary["test"])
    whole = dict(hidden=8, val_data=others[0], test_data=others[1], out=tmp_path / "a.run")
    run = lacis.train(graph, epochs=5, **whole)
    assert lacis.load_graph(tmp_path / "a-run-val_data").num_nodes == 300
    again = lacis.train(graph, resume=tmp_path / "a.run", val_data=others[0])
    assert again.summary["test"] == run.summary["test"]


def test_unknown_arguments_are_type_errors(graph):
    with pytest.raises(TypeError, match="epohcs"):
        lacis.train(graph, epohcs=3)
    with pytest.raises(ValueError, match="nothing"):
        lacis.train(graph, model="nothing")
    with pytest.raises(TypeError):
        lacis.train(3)


def test_a_graph_without_labels_is_refused():
    bare = lacis.Graph.from_edges([[0, 1], [1, 0]], 2, x=np.ones((2, 3)))
    with pytest.raises(ValueError, match="labels"):
        lacis.train(bare, epochs=2)


def test_a_run_goes_on_with_what_it_was_begun_with(graph, tmp_path):
    first = lacis.train(graph, model="sage", hidden=8, epochs=4, out=tmp_path / "run")
    again = lacis.train(graph, resume=tmp_path / "run")
    assert again.summary["test"] == first.summary["test"] and again.path == tmp_path / "run"
    assert lacis.train(graph, model="sage", hidden=8, resume=tmp_path / "run").summary["test"] \
        == first.summary["test"]
    with pytest.raises(ValueError, match="begun with 8"):
        lacis.train(graph, hidden=9, resume=tmp_path / "run")
    with pytest.raises(ValueError, match="begun with sage"):
        lacis.train(graph, "gin", resume=tmp_path / "run")


def test_what_the_program_was_called_with_is_its_own_business(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(f"""
        import lacis
        graph = lacis.load_graph({DATA!r})
        lacis.train(graph, hidden=8, epochs=3, out="run")
        print(lacis.train(graph, resume="run").summary["epochs"])
    """))
    command = [sys.executable, script, "--hidden", "99", "--model", "gat"]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert outcome.stdout == "3\n", outcome.stderr


def test_training_can_be_approximated(graph):
    exact = lacis.train(graph, hidden=16, epochs=12, seed=3)
    same = lacis.train(graph, hidden=16, epochs=12, seed=3, approx="adaptive", approx_budget=1,
                       approx_force=True)
    np.testing.assert_array_equal(same.history["loss"], exact.history["loss"])
    near = lacis.train(graph, hidden=16, epochs=12, seed=3, approx="adaptive", approx_budget=0.5,
                       approx_force=True)
    assert near.summary["approx"]["on"] and near.summary["approx"]["layers"]
    assert not np.array_equal(near.history["loss"], exact.history["loss"])
    np.testing.assert_allclose(near.history["loss"], exact.history["loss"], atol=0.2)


def test_several_runs_have_a_mean(graph):
    run = lacis.train(graph, hidden=8, epochs=3, runs=2)
    assert run.summary["runs"] == 2 and "std" in run.summary
    assert len(run.history["loss"]) == 3


def test_a_run_draws_itself(run):
    page = run._repr_html_()
    assert page.count("<polyline") == 3 and "epoch 20" in page and run.plan.id in page
    assert "20 epochs" in repr(run)


def test_ctrl_c_keeps_the_history(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(f"""
        import signal, sys, time, lacis
        # A job in the background is started with Ctrl-C ignored; and nobody waits for ever.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.alarm(60)
        graph = lacis.load_graph({DATA!r})
        print("ready", flush=True)
        run = lacis.train(graph, epochs=10_000_000)
        stopped = time.time()
        print(run.interrupted, len(run.history["loss"]), stopped, flush=True)
        print(run.model.predict(graph).shape)
    """))
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(3)
    asked = time.time()
    os.kill(process.pid, signal.SIGINT)
    interrupted, epochs, stopped = process.stdout.readline().split()
    assert interrupted == "True" and int(epochs) > 0
    assert float(stopped) - asked < 1
    assert process.stdout.readline() == "(300,)\n"
    assert process.wait(timeout=30) == 0


def test_the_command_stops_on_ctrl_c_and_says_so(tmp_path):
    command = [sys.executable, "-m", "lacis", "train", DATA, "--epochs", "10000000", "--out",
               str(tmp_path / "run")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    time.sleep(4)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert (tmp_path / "run" / "checkpoint").exists()


def test_notebooks_get_a_live_figure(graph, monkeypatch):
    shown = []

    class Handle:
        def update(self, page):
            shown.append(page)

    def display(page, display_id):
        shown.append(page)
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    notebook = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display",
                        types.SimpleNamespace(HTML=str, display=display))
    lacis.train(graph, hidden=8, epochs=5)
    assert shown and "5/5" in shown[-1] and "<svg" in shown[-1]


def test_a_terminal_gets_a_line(graph, capsys):
    lacis.train(graph, hidden=8, epochs=5, progress=True)
    assert "1/5  loss" in capsys.readouterr().err
    lacis.train(graph, hidden=8, epochs=5)
    assert capsys.readouterr().err == ""
