"""ROC curve of a membership attack, on logarithmic axes that show low false positive rates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._extras import name_missing_extra
from .._files import without_mathtext
from .._validation import open_unit
from ..attacks.attack_result import AttackResult
from ..attacks.attributes.label import LabelInferenceResult
from ..metrics.rates import clopper_pearson, roc


class MembershipRocDisplay:
    """ROC curve of a membership attack on logarithmic axes.

    Create one with :meth:`from_result` or :meth:`from_predictions`.

    Parameters
    ----------
    fpr, tpr : ndarray of shape (n_points,)
        The curve, by decreasing threshold.
    n_in, n_out : int
        Numbers of members and non-members from which it is computed.
    alpha : float, default=0.05
        Error probability of the confidence band, at each point.
    name : str, default=None
        Label of the curve.
    bound : callable, default=None
        The largest TPR that any attack can reach at an FPR, such as a guarantee's ``tpr_bound``.

    Attributes
    ----------
    ax_, figure_, line_, band_, chance_ : matplotlib artists
        Set by :meth:`plot`, as is ``bound_`` if there is a bound.

    Examples
    --------
    >>> from skprivacy.attacks import AttackResult
    >>> from skprivacy.display import MembershipRocDisplay
    >>> result = AttackResult(range(60, 160), range(100), attack="made up")
    >>> display = MembershipRocDisplay.from_result(result)
    >>> display.line_.get_label()
    'made up (AUC 0.92)'
    """

    ax_: Any
    figure_: Any
    line_: Any
    band_: Any
    chance_: Any
    bound_: Any

    def __init__(
        self,
        fpr: NDArray[np.float64],
        tpr: NDArray[np.float64],
        *,
        n_in: int,
        n_out: int,
        alpha: float = 0.05,
        name: str | None = None,
        bound: Any = None,
    ) -> None:
        self.fpr = fpr
        self.tpr = tpr
        self.n_in = n_in
        self.n_out = n_out
        self.alpha = alpha
        self.name = name
        self.bound = bound

    @classmethod
    def from_result(
        cls, result: AttackResult, *, ax: Any = None, bound: Any = None, **kwargs: Any
    ) -> MembershipRocDisplay:
        """Plot an :class:`~skprivacy.attacks.AttackResult`.

        Parameters
        ----------
        result : AttackResult
            The result to plot.
        ax : matplotlib Axes, default=None
            None makes a new figure.
        bound : callable or PrivacyGuarantee, default=None
            Limit that a guarantee sets for every attack, drawn as a line.
        **kwargs
            Passed to matplotlib's ``plot`` for the curve.
        """
        of_labels = isinstance(result, LabelInferenceResult)
        if not isinstance(result, AttackResult):
            raise TypeError(f"result={result!r} must be an AttackResult.")
        if bound is not None and not of_labels and getattr(bound, "relation", None) == "label":
            raise ValueError(
                f"bound={bound!r} is a guarantee of labels and limits no attack on membership. "
                "Pass the result of a LabelInferenceAttack, or a guarantee of records."
            )
        name = f"{result.attack} (AUC {result.auc:.2f})"
        return cls.from_predictions(
            result.scores_in,
            result.scores_out,
            alpha=result.alpha,
            name=name,
            ax=ax,
            bound=bound,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        scores_in: ArrayLike,
        scores_out: ArrayLike,
        *,
        alpha: float = 0.05,
        name: str | None = None,
        ax: Any = None,
        bound: Any = None,
        **kwargs: Any,
    ) -> MembershipRocDisplay:
        """Plot the scores of members and non-members.

        Parameters
        ----------
        scores_in : array-like of shape (n_in,)
            Scores of members.
        scores_out : array-like of shape (n_out,)
            Scores of non-members.
        alpha : float, default=0.05
            Error probability of the confidence band.
        name : str, default=None
            Label of the curve.
        ax : matplotlib Axes, default=None
            None makes a new figure.
        bound : callable or PrivacyGuarantee, default=None
            Limit that a guarantee sets for every attack, drawn as a line.
        **kwargs : dict
            Passed to matplotlib's ``plot`` for the curve.

        Returns
        -------
        MembershipRocDisplay
            What was drawn.
        """
        fpr, tpr, _ = roc(scores_in, scores_out)
        open_unit("alpha", alpha)
        bound = getattr(bound, "tpr_bound", bound)
        if bound is not None and not callable(bound):
            raise TypeError(
                f"bound={bound!r} must be a PrivacyGuarantee, or a function of the false positive "
                "rate."
            )
        display = cls(
            fpr,
            tpr,
            n_in=np.size(scores_in),
            n_out=np.size(scores_out),
            alpha=alpha,
            name=name,
            bound=bound,
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Any:
        """Draw the curve, its confidence band, the line of chance and the bound, if there is one.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None makes a new figure.
        name : str, default=None
            Label of the curve; None keeps the label given at construction.
        **kwargs
            Passed to matplotlib's ``plot`` for the curve.

        Returns
        -------
        MembershipRocDisplay
            Itself.
        """
        with name_missing_extra():
            import matplotlib.pyplot as plt

        self.ax_ = plt.subplots()[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        least = 0.5 / self.n_out  # replaces zero, which a log axis cannot show
        fpr, tpr = np.maximum(self.fpr, least), np.maximum(self.tpr, 0.5 / self.n_in)
        low, high = clopper_pearson(np.rint(self.tpr * self.n_in), self.n_in, self.alpha)
        name = self.name if name is None else name
        label = None if name is None else without_mathtext(name)
        (self.line_,) = self.ax_.step(fpr, tpr, where="post", label=label, **kwargs)
        self.band_ = self.ax_.fill_between(
            fpr, low, high, step="post", alpha=0.2, color=self.line_.get_color(), linewidth=0
        )
        grid = np.geomspace(least, 1, 200)
        (self.chance_,) = self.ax_.plot(grid, grid, "--", color="grey", label="chance")
        if self.bound is not None:
            limits = np.array([float(self.bound(rate)) for rate in grid])
            (self.bound_,) = self.ax_.plot(grid, limits, ":", color="black", label="guarantee")
        self.ax_.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1.05))
        self.ax_.set(xlabel="False positive rate", ylabel="True positive rate")
        self.ax_.legend(loc="lower right")
        return self
