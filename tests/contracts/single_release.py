"""Contract of estimators that release everything at once, beyond the general one."""

import numpy as np

from skprivacy.accounting import ComposedEvent, PrivacyGuarantee
from skprivacy.mechanisms import Exponential, Mechanism

from .cases import Case
from .neighbors import N
from .noise_laws import check_independent, check_standard_normal, claim_of, noise_of, standardised
from .tape import Tape, recording

FITS = 100


def check_noise(case: Case) -> None:
    """Noise has the declared law and size, at every number, and is new in every fit."""
    tapes = [Tape() for _ in range(FITS)]
    for tape in tapes:
        with recording(tape):
            case.make().fit(*case.data(N))
    for release in zip(*(t.mechanisms for t in tapes), strict=True):
        assert len(set(release)) == 1, "the mechanism changes from fit to fit"
    for i, mechanism in enumerate(tapes[0].mechanisms):
        made = [noise_of(mechanism, t.inputs[i], t.outputs[i]).ravel() for t in tapes]
        least = min(map(len, made))  # earlier noise may decide how much is released
        noise = np.array([numbers[:least] for numbers in made])
        claim = claim_of(mechanism, tapes[0].inputs[i])
        noise = standardised(claim, noise / _unit(mechanism))
        check_standard_normal(noise)
        check_independent(noise)


def _unit(mechanism: Mechanism) -> float:
    """Return the unit of ``noise_of``: a choice has been made standard normal by it."""
    return 1.0 if isinstance(mechanism, Exponential) else mechanism.sensitivity


def check_accounting(case: Case) -> None:
    """All that was released costs, composed, what is claimed, and no more."""
    for params in ({}, {"n_records": N}) if case.add_remove else ({},):
        tape = Tape()
        with recording(tape):
            model = case.make(**params).fit(*case.data(N))
        everything = ComposedEvent(tuple(m.event for m in tape.mechanisms))
        released = everything if case.released is None else case.released(tape)
        spent = PrivacyGuarantee(released, at_delta=model.delta, relation=model.relation)
        # The accountant rounds losses up to its grid, which is up to a thousandth of them.
        assert 0.98 * model.epsilon < spent.epsilon() <= model.epsilon * (1 + 2e-3)
        assert 0.99 * model.epsilon < model.epsilon_ <= model.epsilon
        assert model.delta_ == model.delta
        assert model.privacy_.kind == "proved"
        assert model.privacy_.relation == model.relation
        public = "the number of records is public" in model.privacy_.assumptions
        assert public == (model.relation == "zero_out")
