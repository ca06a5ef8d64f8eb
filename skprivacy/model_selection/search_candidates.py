"""Candidate settings of a private search, and the rehearsed guarantee of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, ParameterSampler

from ..accounting import PrivacyGuarantee
from ..audit import claim_of
from ..base import PrivateEstimatorMixin, rehearse_fit
from ..preprocessing.pipeline import is_plain_pipeline
from .search_scores import HeldOut

_PRIVACY_PARAMETERS = (
    "budget", "delta", "epsilon", "n_records", "noise_multiplier", "noise_seed", "relation",
)  # fmt: skip


def list_settings(spaces: Any, n_candidates: int, random_state: Any) -> list[dict[str, Any]]:
    """Return the settings that trials draw from: the grid, or draws if there are distributions."""
    try:
        given = [spaces] if isinstance(spaces, Mapping) else list(spaces)
        if any(hasattr(v, "rvs") for space in given for v in space.values()):
            found = list(ParameterSampler(given, n_candidates, random_state=random_state))
        else:
            found = list(ParameterGrid(given))
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"param_distributions={spaces!r} must be a dict, or a list of them, of parameters with "
            f"lists of values or distributions: {error}"
        ) from None
    for name in sorted({name for params in found for name in params}):
        if name.rpartition("__")[2] in _PRIVACY_PARAMETERS:
            raise ValueError(
                f"param_distributions varies {name!r}, but all trials must have one guarantee. "
                "Remove it: the search sets epsilon and delta of its trials."
            )
    if not found or not any(found):
        raise ValueError(
            f"param_distributions={spaces!r} varies nothing. Pass values of a parameter."
        )
    return found


@dataclass(frozen=True)
class Candidates:
    """Settings of one model or pipeline, each of which can be fitted at any epsilon and delta."""

    estimator: Any
    prefix: str  # of the names of the private step's parameters
    settings: list[dict[str, Any]]
    fixed: dict[str, Any]  # further parameters of the private step

    def model(self, number: int, epsilon: float, delta: float, noise_seed: Any = None) -> Any:
        """Return an unfitted model with the setting of this number."""
        params = {k: clone(v, safe=False) for k, v in self.settings[number].items()}
        model = clone(self.estimator).set_params(**params)
        known = model.get_params()
        ours = {"epsilon": epsilon, "delta": delta, "budget": None, "noise_seed": noise_seed}
        ours = {self.prefix + k: v for k, v in (ours | self.fixed).items()}
        # A progress bar would reveal the number of trials.
        quiet = {k: type(v)(0) for k, v in known.items() if k.rpartition("__")[2] == "verbose"}
        return model.set_params(**{k: v for k, v in (ours | quiet).items() if k in known})

    def private_part(self, model: Any) -> Any:
        """Return the private step of a model."""
        name = self.prefix.removesuffix("__")
        return model.get_params()[name] if name else model

    def check(self) -> None:
        """Refuse a model whose fit cannot be rehearsed."""
        for number in range(len(self.settings)):
            model = last = self.model(number, 1.0, 0.0)
            while is_plain_pipeline(last):
                last = last.steps[-1][1]
            part = self.private_part(model)
            if part is not last or not isinstance(part, PrivateEstimatorMixin):
                raise TypeError(
                    f"estimator={self.estimator!r} must be a private estimator of skprivacy, or a "
                    "Pipeline whose last step is one: what a fit of anything else would guarantee "
                    "is not known beforehand. Put the search inside the wrapper instead."
                )
            if getattr(part, "_processes", None) is not None:
                raise ValueError(
                    "The estimator trains in several processes, which would draw different trials "
                    "and keep different best models. Train it in one process."
                )
            if self.prefix + "server" in model.get_params():
                raise ValueError(
                    "The estimator trains over parties, whose server and parties see the rounds of "
                    "every trial, but all trials except the best must stay secret. Fit it with "
                    "settings that are chosen beforehand."
                )

    def claims(
        self, epsilon: float, delta: float, data: HeldOut, fit_params: dict[str, Any]
    ) -> list[PrivacyGuarantee]:
        """Rehearse a fit of each setting; refuse unproved claims, and mixed relations or units."""
        found = [
            self._claim(self.model(number, epsilon, delta), data, fit_params)
            for number in range(len(self.settings))
        ]
        for what in ("relation", "unit"):
            values = sorted({getattr(claim, what) for claim in found})
            if len(values) > 1:
                raise ValueError(
                    f"param_distributions leads to guarantees of more than one {what}: {values}. "
                    "They are never added up. Remove the parameter that decides about it."
                )
        return found

    def _claim(self, model: Any, data: HeldOut, fit_params: dict[str, Any]) -> PrivacyGuarantee:
        stated = rehearse_fit(lambda: data.fit(model, fit_params))
        self.private_part(model).privacy_ = stated  # for claim_of, as if it were fitted
        claim = claim_of(model, data.X_fit)
        if claim.guarantee is None or claim.guarantee.kind != "proved":
            gaps = "; ".join(f"step {k!r}: {why}" for k, why in claim.uncovered.items())
            raise ValueError(
                f"A trial would have no proved guarantee ({gaps or claim.reason or stated.kind}). "
                "Leave out what learns from private records, or use SchemaTransformer for it."
            )
        if claim.guarantee.event != stated.event:
            raise ValueError(
                f"estimator={self.estimator!r} holds a step that was fitted privately beforehand. "
                "Its cost does not depend on who is held out, so the search cannot cover it: "
                "transform the records before the search, and add both costs."
            )
        unit = claim.guarantee.unit
        if data.unit == "record" and unit != "record":
            raise ValueError(
                f"The estimator protects units of {unit!r}, of which one may add to the scores of "
                "many records. Pass their groups to fit of the search, or search with an estimator "
                "that protects records."
            )
        if unit != data.unit:
            raise ValueError(
                f"The search is given groups, values of {data.unit!r}, and a fit of the estimator "
                f"would protect units of {unit!r}. Search with an estimator whose fit takes groups."
            )
        return claim.guarantee
