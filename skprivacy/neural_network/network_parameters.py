"""Constraints of the parameters of private networks, and paragraphs that their docstrings share."""

from __future__ import annotations

from numbers import Integral, Real

from .._sklearn import StrOptions
from .._validation import Interval
from ..accounting import PrivacyBudget
from ._training.training_config import NOISE
from .settings import GRAD_NORM, Clipping, Distributed, Optimizer

# Constraints of the parameters of every private training; skorch names two of them differently.
EPOCHS = [Interval(Integral, 1, None, closed="left")]
STEP_SIZE = [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")]
TRAINING_CONSTRAINTS: dict = {
    "epsilon": [Interval(Real, 0, None, closed="right"), None],
    "delta": [Interval(Real, 0, 1, closed="neither")],
    "noise_multiplier": [Interval(Real, 0, None, closed="neither"), None],
    "noise": [StrOptions(set(NOISE))],
    "max_grad_norm": [StrOptions({"auto"}), GRAD_NORM, Clipping],
    "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    "augment": [callable, "array-like", None],
    "relation": [StrOptions({"zero_out", "add_remove"})],
    "n_records": [Interval(Integral, 1, None, closed="left"), None],
    "max_group_size": [Interval(Integral, 1, None, closed="left"), None],
    "noise_seed": [Integral, None],
    "budget": [PrivacyBudget, None],
}
NETWORK_CONSTRAINTS: dict = {
    **TRAINING_CONSTRAINTS,
    "epochs": [StrOptions({"auto"}), *EPOCHS],
    "learning_rate": STEP_SIZE,
    "hidden_layer_sizes": [StrOptions({"auto"}), "array-like"],
    "module": [callable, None],
    "optimizer": [StrOptions({"auto", "sgd", "adam"}), Optimizer],
    "device": [str, Distributed],
    "random_state": ["random_state"],
}

# For `skprivacy._docs.fill_docs`.
NETWORK_DOCS = {
    "network_model": """\
hidden_layer_sizes : tuple of int or "auto", default="auto"
    Units of each hidden layer. An empty tuple gives a private linear model, which does best with
    few records or a small ``epsilon``. "auto" follows from public facts: see the notes. Units are
    tanh, whose bounded outputs keep gradients small. Without privacy, given layers are ReLU.
module : type or torch.nn.Module, default=None
    A network to train instead of the perceptron. A class takes its arguments from ``module__x``
    parameters. A ready-made module is copied, and its weights must be public. The module maps rows
    of shape (n, n_features) to one logit per class, or to one number for regression. It must not
    mix examples: batch normalisation is refused. Reshape images inside it.
%(augment)s
%(epsilon_or_noise)s
%(training_noise)s""",
    "augment": """\
augment : callable, list of callables, or tuple (these, int), default=None
    Random changes of the rows in training, such as :class:`RandomShift` for images. Each maps a
    tensor of rows to one of the same shape and treats each row by itself. It draws its random
    numbers from torch, independently of the values. A trial on random numbers refuses others.
    ``(RandomShift((1, 28, 28)), 4)`` shows 4 random views of each record in a step: their gradients
    are averaged and then clipped. More views cost time, but no privacy.""",
    "epsilon_or_noise": """\
epsilon : float or None, default=1.0
    Privacy loss that training may cost, in nats. Smaller is more private. ``numpy.inf`` trains
    without noise and **without any guarantee**, for comparison. ``None`` if ``noise_multiplier``
    is given.
delta : float, default=1e-5
    Probability with which ``epsilon`` may be exceeded. Must be below 1 / number of records.
noise_multiplier : float, default=None
    Standard deviation of the noise in units of ``max_grad_norm``, instead of a target ``epsilon``:
    to repeat published runs or compare accountants. Requires ``epsilon=None``; ``epsilon_`` then
    reports the cost.""",
    "training_noise": """\
noise : {"gaussian", "exact", "logistic", "banded", "tree"}, default="gaussian"
    "gaussian" and "logistic" draw new noise in every step, on a Poisson sample of the records.
    "exact" is Gaussian noise on a grid: the guarantee then holds to the last bit of the weights.
    It is slower, and is drawn on the CPU even if training runs on a GPU. "banded" and "tree"
    (DP-FTRL) are for streams: batches follow the order of ``X``, and the noise of successive steps
    partly cancels. See the guarantees below.""",
    "network_optimization": """\
batch_size : int or "auto", default="auto"
    Expected number of records in a step. "auto" follows from public facts: see the notes.
epochs : int or "auto", default="auto"
    Expected number of times that each record takes part. "auto" follows from public facts.
    ``skprivacy.set_config(progress=True)`` shows a progress bar.
optimizer : {"auto", "sgd", "adam"} or Optimizer, default="auto"
    "adam" subtracts the known variance of the noise from its second moment. "auto" is "sgd", but
    "adam" where the notes say so. An :class:`Optimizer` also sets momentum, schedule and averaging.
learning_rate : float or "auto", default="auto"
    Step size. "auto" is 0.01 for "adam"; for "sgd" it follows from public facts.""",
    "max_group_size": """\
max_group_size : int or None, default=2
    With ``groups`` in ``fit``: number of records used per group, at most. They are drawn once,
    before training. The noise does not depend on this number: 5 is better where the records of a
    group differ much, see :doc:`/how_to/grouped_records`. ``None`` uses all. A :class:`Clipping`
    says how their gradients are joined.""",
    "network_run": """\
%(n_records)s
%(max_group_size)s
device : str or Distributed, default="auto"
    Where to train: "cpu", "cuda", "cuda:1"... "auto" takes a GPU if there is one.
    :class:`Distributed` trains in several processes.
random_state : int, RandomState instance or None, default=None
    Seeds the initial weights only. It never makes sampling or noise reproducible.
%(noise_seed)s
%(budget)s
**module_params : dict
    Arguments of a ``module`` class, as ``module__x``.""",
    "continued_fit": """\
groups : array-like of shape (n_samples,), default=None
    As in ``fit``. All calls must protect the same unit: records, or groups of one name.

Returns
-------
object
    Its ``privacy_`` covers all calls since the last ``fit``, for a record (or a group) that is in
    all of them.

Raises
------
ValueError
    As in ``fit``, or if the earlier training protects another unit.""",
    "network_attributes": """\
noise_multiplier_ : float
    Standard deviation of the noise divided by ``max_grad_norm``. For "logistic" noise it is the
    scale divided by the norm. "banded" and "tree" noise mixes independent numbers; it is then the
    standard deviation of one of these, divided by the norm.
max_grad_norm_ : float
    The clipping norm of the last step. With "adaptive" clipping it differs from ``max_grad_norm``.
n_steps_ : int
    Number of training steps.""",
    "fitted_network": """\
%(guarantee_attributes)s
%(network_attributes)s
settings_ : dict
    Value of each setting that can be "auto", in the last training.
gradients_ : {"book-keeping", "torch.func", "one by one"}
    How per-example gradients were computed, from fast to slow. A warning names the layers that
    need the slowest way.
%(feature_attributes)s""",
    "network_guarantees": """\
**Guarantees.** The fitted attributes, hence everything predicted from them, are (``epsilon``,
``delta``)-differentially private, and ``epsilon_`` never exceeds ``epsilon``. The unit is one
record or, with ``groups``, all records of a group. Under the default relation,
"zero_out", one record is replaced by one that contributes nothing, and the number of records is
public.

With ``groups``, a step draws whole groups, joins the gradients of a group's records and clips
them once. ``n_records``, ``batch_size``, ``epochs``, ``delta`` and the "auto" settings then count
groups.

Each step is a Poisson-sampled Gaussian mechanism. The steps are composed by their privacy loss
distribution; for logistic noise, by their Renyi divergences where these are tighter. A run of
"banded" or "tree" noise is one Gaussian mechanism without sampling. Its
guarantee holds under zero-out only, and only if the batch of each record does not depend on data.

Preprocessing that is fitted on the same data, such as a ``StandardScaler``, is **not** covered: use
:class:`skprivacy.preprocessing.SchemaTransformer`. The duration of training is not protected.

Gradients and noise are floating-point numbers. They are not hardened against an adversary who
reads the lowest bits of the weights (Mironov 2012). "exact" noise is hardened: gradients are summed
in double precision, clipping leaves room for the errors of the sum, and the sum is rounded once to
the grid of the noise, see ``mechanisms/rounded_gaussian.py``. This needs that no record
changes the last bit of another record's gradient. Under zero-out that holds, because a record
without contribution keeps its row of the batch. Under add-remove and with ``groups`` it is an
assumption of the guarantee.""",
    "network_edge_cases": """\
**Edge cases.** A record with NaN, infinite or huge values has no finite gradient and is ignored.
There is no warning, because whether such records exist must not show. The other records of its
group still count, and the mean is over all records in use. A batch may be empty: it still adds
noise and counts as a step. ``predict`` refuses NaN and infinity.""",
}
