"""`patch()`: torch_geometric's layers and functions, torch's and torch_sparse's sparse products,
replaced by ones that run on Lacis's kernels where they can and call the original where not."""

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import time

from . import _memory, _report

_undo = []
_names = []
_layers = []
_state = {"active": False}


def is_patched():
    return _state["active"]


class Handle:
    """What `patch()` returns: its repr lists what is patched."""

    def __init__(self, names, note=None):
        self.names, self.note = tuple(names), note

    def __repr__(self):
        if self.note:
            return f"<lacis.patch: {self.note}>"
        return "<lacis.patch: " + ", ".join(self.names) + ">"


def patch():
    """Make torch_geometric, torch.sparse and torch_sparse run on Lacis's kernels.

    Silent and idempotent; models may be built before or after. Whatever Lacis does not know runs
    as before; :func:`lacis.report` says what and why. ``LACIS_DISABLE=1`` makes this a no-op.
    Memory that tensors free stays with the process for the next ones (``LACIS_KEEP_MEMORY=0``:
    it does not).
    """
    if os.environ.get("LACIS_DISABLE", "0") not in ("", "0"):
        return Handle((), "off, because LACIS_DISABLE is set")
    if not _state["active"]:
        if importlib.util.find_spec("torch") is None:
            return Handle((), "nothing to patch: torch is not installed")
        try:
            _patch_all()
        except BaseException:
            unpatch()
            raise
        _state["active"] = True
    return Handle(_names)


def unpatch():
    """Put the identical originals back."""
    _state["active"] = False
    while _undo:
        _undo.pop()()
    _names.clear()
    _layers.clear()


class patched(contextlib.ContextDecorator):
    """``with lacis.patched(): ...``, also a decorator. Process-wide, as `patch()` is; what was
    patched before stays so."""

    def __enter__(self):
        self._was = getattr(self, "_was", [])
        self._was.append(_state["active"])
        return patch()

    def __exit__(self, *exc):
        if not self._was.pop():
            unpatch()
        return False


def _patch_all():
    from . import _functions

    functions = {}
    if importlib.util.find_spec("torch_geometric") is not None:
        install_layers()
        utils = importlib.import_module("torch_geometric.utils")
        for name in ("spmm", "scatter", "segment", "softmax"):
            original = getattr(utils, name)
            functions[original] = getattr(_functions, name)(original)
            _names.append(f"torch_geometric.utils.{name}")
        _patch_sampler()
    # Its module is hidden by the function of the same name.
    original = getattr(sys.modules.get("torch_sparse.matmul"), "matmul", None)
    if original is not None:
        functions[original] = _functions.torch_sparse_matmul(original)
        _names.append("torch_sparse.matmul")
    _patch_between(_functions, functions)
    _replace_everywhere(functions)
    _patch_torch(_functions)
    undo = _memory.keep()
    if undo is not None:
        _undo.append(undo)


def _patch_sampler():
    """Draws where neither pyg-lib nor torch-sparse is there to draw."""
    from ._sampler import replacement

    sampler = importlib.import_module("torch_geometric.sampler").NeighborSampler
    _replace(sampler, "_sample", replacement(sampler._sample), "NeighborSampler")


def install_layers():
    """Put the fused layers in place; they act where `patch()` or `optimize()` says so."""
    from ._layers import LAYERS

    if _layers:
        return
    conv = importlib.import_module("torch_geometric.nn.conv")
    for name, (fused, methods) in LAYERS.items():
        cls = getattr(conv, name, None)
        if cls is None or not is_pygs(cls.__dict__.get("forward")):
            continue
        _replace(cls, "forward", layer_forward(cls, fused, methods), name)
        _layers.append(cls)


def is_layer(module):
    """Whether it is one of the layers that Lacis knows, or of a class made from one."""
    return isinstance(module, tuple(_layers))


def _patch_torch(functions):
    import torch

    mm = functions.sparse_mm(torch.sparse.mm, "torch.sparse.mm")
    _replace(torch.sparse, "mm", mm, "torch.sparse.mm")
    _replace(torch, "spmm", functions.sparse_mm(torch.spmm, "torch.spmm"), "torch.spmm")
    _replace_method("__matmul__", functions.matmul)
    _names.append("sparse @ dense")


def _patch_between(made, functions):
    """What lies between layers: `functions` gets those that modules hold, tensors the others.
    `torch.nn.functional` calls these, or is called itself."""
    import torch

    functional = torch.nn.functional
    for name in ("relu", "log_softmax"):
        original = getattr(torch, name)
        functions[original] = getattr(made, name)(original)
        _replace_method(name, getattr(made, name))
        _names.append(f"torch.{name}")
    functions[functional.cross_entropy] = made.cross_entropy(functional.cross_entropy)
    _names.append("torch.nn.functional.cross_entropy")


def _replace_method(name, replacement):
    """A method of tensors, which its class may have from another."""
    import torch

    own = name in torch.Tensor.__dict__
    original = getattr(torch.Tensor, name)
    setattr(torch.Tensor, name, replacement(original))

    def undo():
        if own:
            setattr(torch.Tensor, name, original)
        else:
            delattr(torch.Tensor, name)

    _undo.append(undo)


def _replace(owner, name, value, shown):
    original = owner.__dict__[name] if name in getattr(owner, "__dict__", {}) else \
        getattr(owner, name)
    setattr(owner, name, value)
    _names.append(shown)
    _undo.append(lambda: setattr(owner, name, original))


def _replace_everywhere(functions):
    """In every module that holds one of the very functions under any name; unpatching also finds
    those that imported a replacement since."""
    _swap(functions)
    _undo.append(lambda: _swap({new: old for old, new in functions.items()}))


def _swap(functions):
    by_id = {id(old): new for old, new in functions.items()}
    for name, module in list(sys.modules.items()):
        names = getattr(module, "__dict__", None)
        if type(names) is not dict or name.startswith(__package__ + "._"):
            continue
        for key, value in list(names.items()):
            new = by_id.get(id(value))
            if new is not None:
                names[key] = new


def bypassed():
    """Why no call can be accelerated now, or None."""
    import torch

    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return "a torch mode that watches operations"
    if torch.jit.is_tracing():
        return "torch.jit.trace"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a torch.func transform"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode differentiation"
    if torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.float16:
        return "autocast to float16"
    return None


_HOOKS = ("_propagate_forward_pre_hooks", "_propagate_forward_hooks", "_message_forward_pre_hooks",
          "_message_forward_hooks", "_aggregate_forward_pre_hooks", "_aggregate_forward_hooks",
          "_message_and_aggregate_forward_pre_hooks", "_message_and_aggregate_forward_hooks",
          "_edge_update_forward_pre_hooks", "_edge_update_forward_hooks")


def is_pygs(function):
    """Whether a function is torch_geometric's own, and not one put in its place."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith(_pyg_folder())


@functools.cache
def _pyg_folder():
    return os.path.dirname(importlib.import_module("torch_geometric").__file__) + os.sep


class Originals:
    """The methods of a class of torch_geometric's that a fused layer stands for, as they were made;
    one that was replaced before Lacis came counts as none."""

    def __init__(self, cls, methods):
        self.methods = []
        for name in methods:
            method = getattr(cls, name)
            # Made of a template for each class, which `changed` knows by other names.
            own = name in ("propagate", "edge_updater") or is_pygs(method)
            self.methods.append((name, method if own else None))


def changed(layer, originals):
    """Why a layer is not what torch_geometric made it, or None."""
    kind, own = type(layer), layer.__dict__
    for name, method in originals.methods:
        if name in own:
            return f"its own {name}"
        if name in ("propagate", "edge_updater"):
            function = getattr(kind, name)
            if function not in (getattr(kind, f"_jinja_{name}", None),
                                getattr(kind, f"_orig_{name}", None)):
                return f"another {name}"
        elif getattr(kind, name) is not method:
            return f"another {name}"
    if own.get("_explain"):
        return "explain mode"
    if own.get("_decomposed_layers", 1) != 1:
        return "decomposed layers"
    if own.get("out_channels") == 0:
        return "no columns of results"
    if own.get("node_dim", -2) not in (-2, 0):
        return "another node dimension"
    for name in _HOOKS:
        if own.get(name):
            return "a message-passing hook"
    return None


def _acts_on(layer):
    return _state["active"] or "_lacis_optimized" in layer.__dict__


def _is_simple(aggregation):
    from ._dense import any_global_hook, any_hook

    return type(aggregation).__name__ in ("SumAggregation", "MeanAggregation") and \
        type(aggregation).__module__ == "torch_geometric.nn.aggr.basic" and \
        not any_hook(aggregation) and not any_global_hook()


def layer_forward(cls, fused, methods):
    """The forward that takes the place of a layer's own."""
    import torch

    from ._inputs import Decline

    from . import _compiled

    original, originals = cls.__dict__["forward"], Originals(cls, methods)
    name = cls.__name__
    is_compiling = torch.compiler.is_compiling
    # What is exported is to run where there is no Lacis.
    is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)
    # Compilers before 2.6 cannot ask a question about a module.
    compiled = _compiled.LAYERS.get(name) if torch.__version__ >= (2, 6) else None

    @torch.compiler.assume_constant_result
    def compiles(layer):
        """Whether the compiled form may stand for this layer; asked once, while tracing."""
        return _acts_on(layer) and changed(layer, originals) is None \
            and _is_simple(layer.aggr_module)

    @functools.wraps(original)
    def forward(self, *args, **kwargs):
        if is_compiling():
            out = None
            if compiled is not None and not is_exporting() and compiles(self):
                out = compiled(self, *args, **kwargs)
            return original(self, *args, **kwargs) if out is None else out
        if not _acts_on(self):
            return original(self, *args, **kwargs)
        record = _report.record(name)
        why = bypassed() or changed(self, originals)
        if why is None:
            try:
                run = fused(self, *args, **kwargs)
            except Decline as declined:
                why = str(declined)
            except Exception as error:  # the original will say what is wrong
                why = f"{type(error).__name__}: {error}"
        if why is not None:
            record.declined[why] += 1
            return original(self, *args, **kwargs)
        if _report._measure["asked"] and _report.wants_measure(name):
            return _measured(self, original, (args, kwargs), record, run)
        return record.run(run, args)

    return forward


def _measured(layer, original, given, record, run):
    """The fused call, and the original beside it, which leaves nothing behind: no gradients, no
    random numbers used up, no statistics counted twice."""
    import torch

    out = record.run(run)
    buffers = [(buffer, buffer.clone()) for buffer in layer.buffers()]
    args, kwargs = given
    active = _state["active"]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        _state["active"] = False
        try:
            started = time.perf_counter()
            other = original(layer, *args, **kwargs)
            record.original_seconds += time.perf_counter() - started
        finally:
            _state["active"] = active
            for buffer, before in buffers:
                buffer.data.copy_(before)
    record.compared += 1
    difference = (out.detach() - other).abs().max() if out.numel() else 0.0
    record.largest_difference = max(record.largest_difference, float(difference))
    return out
