"""Which further arguments of ``fit`` go to the estimators, the scorers and the splitter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sklearn import get_config
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from .._clones import group_names
from .._sklearn import takes_weights
from ._checks import checked_models, checked_scorers
from ._people import splitter_of

__all__ = ["Routed", "RoutedMixin", "weights_in"]


@dataclass(frozen=True)
class Routed:
    """The further arguments of each estimator and each scorer, by name, and of the splitter."""

    fit: dict[str, dict[str, Any]]
    score: dict[str, dict[str, Any]]
    split: dict[str, Any]


class RoutedMixin:
    """Metadata routing of a sweep, as :class:`~sklearn.model_selection.GridSearchCV` has it."""

    estimator: Any
    scoring: Any
    cv: Any

    def get_metadata_routing(self) -> MetadataRouter:
        """Return what the estimators, the scorers and the splitter ask for.

        Returns
        -------
        MetadataRouter
            An estimator has the key "estimator", with its name if there are several; a scorer
            "scorer" and its name; the splitter "splitter".
        """
        router = MetadataRouter(owner=type(self).__name__)
        models = checked_models(self.estimator)
        first = next(iter(models.values()))
        fits = MethodMapping().add(caller="fit", callee="fit")
        scores = (
            MethodMapping().add(caller="score", callee="score").add(caller="fit", callee="score")
        )
        for name, model in models.items():
            router.add(method_mapping=fits, **{_key("estimator", name): model})
        for name, scorer in checked_scorers(first, self.scoring).items():
            router.add(method_mapping=scores, **{_key("scorer", name): scorer})
        splitter = splitter_of(self.cv, classifier=is_classifier(first), grouped=True)
        splits = MethodMapping().add(caller="fit", callee="split")
        return router.add(method_mapping=splits, splitter=splitter)

    def _routed_to_fit(self, groups: Any, params: Mapping[str, Any]) -> Routed:
        models = checked_models(self.estimator)
        scorers = checked_scorers(next(iter(models.values())), self.scoring)
        if not get_config()["enable_metadata_routing"]:
            given = {k: v for k, v in params.items() if v is not None}
            weights = given.get("sample_weight")
            weighted = {} if weights is None else {"sample_weight": weights}
            grouped = {
                name: {} if groups is None else dict.fromkeys(group_names(model), groups)
                for name, model in models.items()
            }
            return Routed(
                {name: grouped[name] | given for name in models},
                {name: weighted if takes_weights(s) else {} for name, s in scorers.items()},
                {"groups": groups},
            )
        given = dict(params) | ({} if groups is None else {"groups": groups})
        found = process_routing(self, "fit", **given)
        return Routed(
            {name: dict(found[_key("estimator", name)].fit) for name in models},
            {name: dict(found[_key("scorer", name)].score) for name in scorers},
            dict(found.splitter.split),
        )

    def _routed_to_score(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if not get_config()["enable_metadata_routing"]:
            if params:
                raise ValueError(
                    f"score takes {sorted(params)} only with "
                    "sklearn.set_config(enable_metadata_routing=True)."
                )
            return {}
        return dict(process_routing(self, "score", **params)[_key("scorer", name)].score)


def weights_in(params: Mapping[str, Any], model: Any) -> tuple[Any, list[str]]:
    """Return the weights of records among arguments of ``fit``, and the names of all others.

    Groups are none of these: they are there wherever ``fit`` takes them.
    """
    names = ["sample_weight"]
    if isinstance(model, Pipeline):
        names.append(f"{model.steps[-1][0]}__sample_weight")
    found = [params[name] for name in names if name in params]
    return (found[0] if found else None), sorted(set(params) - set(names) - set(group_names(model)))


def _key(what: str, name: str) -> str:
    return f"{what} {name}".strip()
