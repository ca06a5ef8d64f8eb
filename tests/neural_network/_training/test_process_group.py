"""Two processes train one model: the same as one process, under the same guarantee."""

from __future__ import annotations

import multiprocessing
import re
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
import torch
from torch import distributed as dist
from torch.torch_version import TorchVersion

from skprivacy.mechanisms import PoissonSampler, SecureRandom
from skprivacy.neural_network import Clipping, Distributed

from . import processes

pytestmark = [
    pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning"),
    pytest.mark.heavy,
]


@contextmanager
def two_processes(target, folder):
    """Run ``target`` in two processes, which put what they found into the queue."""
    forks = "forkserver" in multiprocessing.get_all_start_methods()  # imports for both at once
    context = multiprocessing.get_context("forkserver" if forks else "spawn")
    context.set_forkserver_preload([processes.__name__])
    queue = context.Queue()
    started = [context.Process(target=target, args=(r, str(folder), queue)) for r in range(2)]
    try:
        for process in started:
            process.start()
        yield queue
    finally:
        for process in started:
            process.join(timeout=2)
            process.kill()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    if torch.__version__ < "2.8":
        pytest.skip("training in processes is refused before torch 2.8")
    """Return by scene what each of two processes found."""
    found: dict = {scene.__name__: {} for scene in processes.SCENES}
    with two_processes(processes.run, tmp_path_factory.mktemp("processes")) as queue:
        while not found["dying"]:  # only the first process comes to the end of this one
            rank, scene, result = queue.get(timeout=300)
            found[scene][rank] = result
    return found


@cache
def alone():
    X, y = processes.data()
    once = processes.private().fit(X, y)
    found = dict.fromkeys(("replicated", "sharded", "mapped"), processes.weights(once))
    found["further"] = processes.weights(once.partial_fit(X, y))
    for name, params in (
        ("adaptive", {"max_grad_norm": Clipping("adaptive")}),
        ("banded", {"noise": "banded"}),
        ("exact", {"noise": "exact"}),
    ):
        found[name] = processes.weights(processes.private(**params).fit(X, y))
    found["net"] = processes.weights(processes.net().fit(X, y))
    found["regressor"] = processes.weights(processes.regressor().fit(X, X[:, 1]))
    return found


def test_two_processes_give_the_model_of_one(results):
    for name, expected in alone().items():
        for rank in (0, 1):
            # Sums are added up in another order: rounding of single-precision parts.
            found = results["same_as_one"][rank][name]
            assert np.allclose(found, expected, rtol=1e-5, atol=1e-5), name


def test_all_processes_end_with_the_same_weights(results):
    first, second = results["same_as_one"][0], results["same_as_one"][1]
    for name in first:
        assert np.array_equal(first[name], second[name]), name


def test_all_processes_state_the_guarantee_of_one(results):
    X, y = processes.data()
    model = processes.private(noise_seed=None).fit(X, y)
    alone = model.privacy_.to_dict()
    trust = "the processes that train together, and what connects them, are trusted"
    together = {**alone, "assumptions": [trust, *alone["assumptions"]]}
    for rank in (0, 1):
        assert results["claims"][rank]["privacy"] == repr(together)


def test_there_is_exactly_one_noise(results):
    """3,202 weights: the standard deviation is known to 1.25% (one sigma)."""
    for rank in (0, 1):
        found = results["noise"][rank]
        assert found["sound"] == pytest.approx(1.0, rel=0.08)
        assert found["each_adds_noise"] > 1.3
        assert found["each_keeps_its_own_noise"] > 1.3
        assert found["nobody_adds_noise"] == 0.0


def test_a_record_moves_what_is_released_by_its_norm_in_whichever_process_it_is(results):
    found = results["sensitivity"][0]  # the process that releases
    for mode in ("replicated", "sharded"):
        for distance in found[mode]:
            assert 0.6 < distance <= 1.0 + 1e-6
    assert found["counted twice"][0] > 1.5, "the planted bug is not seen"


def test_two_processes_protect_people_as_one_does(results):
    X, y = processes.data()
    whose = processes.households()
    expected = {
        "replicated": processes.private().fit(X, y, groups=whose),
        "sharded": processes.private(max_group_size=None).fit(X, y, groups=whose),
    }
    for name, model in expected.items():
        for rank in (0, 1):
            found = results["people"][rank][name]
            assert np.allclose(found, processes.weights(model), rtol=1e-5, atol=1e-5), name


def test_a_person_moves_what_is_released_by_one_contribution(results):
    found = results["people"][0]
    assert all(0.6 < distance <= 1.0 + 1e-6 for distance in found["moved"])
    assert found["moved in two shards"] > 1.5, "the planted bug is not seen"


@pytest.mark.parametrize(
    ("mistake", "match"),
    [
        ("in two shards", "two processes hold records of the same group"),
        ("other groups", "the processes hold different records"),
        ("one without", "Some processes have groups and others none"),
    ],
)
def test_groups_that_do_not_fit_together_are_refused_by_all(results, mistake, match):
    assert all(match in results["people"][rank][mistake] for rank in (0, 1))


def test_only_the_first_process_releases(results):
    found = results["sensitivity"][1]
    assert [d for distances in found.values() for d in distances] == [0.0] * 5


def test_each_record_that_is_drawn_is_in_one_process(results):
    for mode in ("replicated", "sharded"):
        first, second = (results["parts"][rank][mode] for rank in (0, 1))
        offset = 0 if mode == "replicated" else processes.FIRST
        assert len(first) == len(second) > 10
        for (drawn, own), (also_drawn, others) in zip(first, second, strict=True):
            assert drawn == also_drawn
            assert sorted([*own, *(i + offset for i in others)]) == drawn
        assert len({tuple(drawn) for drawn, _ in first}) == len(first)


def test_the_draw_for_all_is_the_samplers(results):
    rate, n = 100 / processes.N, processes.N
    sizes = [len(drawn) for mode in ("replicated", "sharded") for drawn, _ in
             results["parts"][0][mode]]  # fmt: skip
    expected = [len(PoissonSampler(rate).draw(n, SecureRandom())) for _ in range(1000)]
    assert np.mean(sizes) == pytest.approx(np.mean(expected), abs=6 * 9.2 / len(sizes) ** 0.5)


def test_the_budget_is_charged_once(results):
    for rank in (0, 1):
        found = results["budget"][rank]
        assert found["entries"] == found["entries after"] == 1
        assert found["refused"].startswith("BudgetExceededError")
        assert found["kept"]


@pytest.mark.parametrize(
    ("mistake", "match"),
    [
        ("not sharded", "use 'replicated'"),
        ("not replicated", "use 'sharded'"),
        ("norm", "disagree on max_grad_norm"),
        ("clipping", "disagree on max_grad_norm"),
        ("module", "disagree on module"),
        ("one bad", "'epsilon' parameter"),
        ("one bad label", "labels that are not in classes"),
        ("classes", "disagree on classes_"),
    ],
)
def test_a_mistake_in_one_process_is_told_by_all(results, mistake, match):
    for rank in (0, 1):
        found = results["mistakes"][rank][mistake]
        assert match in found
        assert found.split(":")[0] in ("ValueError", "InvalidParameterError")


def test_a_process_that_fails_stops_the_others_and_nothing_is_lost(results):
    found = results["failing_step"]
    assert found[1]["error"] == "MemoryError: no memory in process 1"
    assert found[0]["error"].startswith("RuntimeError: Process 0 of 2 lost the others after 3 ")
    assert found[0]["charged"] == found[1]["charged"]
    assert found[0]["charged"][0] == 1
    assert found[0]["charged"][1] == pytest.approx(1.0, rel=0.01)  # a failed fit stays charged
    for rank in (0, 1):
        assert found[rank]["kept"]
        assert np.allclose(found[rank]["again"], alone()["replicated"], rtol=1e-5, atol=1e-5)


def test_a_killed_process_stops_the_others_which_name_the_charge_that_stays(results):
    """The first process adds the noise: the second cannot know how many steps it has released."""
    found = results["dying"][1]
    assert found["error"].startswith("RuntimeError: Process 1 of 2 lost the others after 3 steps")
    assert re.search(r"charge \d to scope '/' for 'DPSGDClassifier': epsilon=0.99", found["error"])
    assert found["error"].endswith("could release a step twice, so fit again, at a new charge.")
    assert found["spent"] == pytest.approx(1.0, rel=0.01)
    assert (found["entries"], found["entries again"]) == (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scene", "charged", "told"),
    [
        (processes.run_freezing, 1, "delta=1e-05 stays; a resumed run could release a step twice"),
        (processes.run_freezing_before, 0, "nothing was charged"),
    ],
)
def test_a_frozen_process_is_waited_for_as_long_as_the_caller_said(tmp_path, scene, charged, told):
    with two_processes(scene, tmp_path) as queue:
        rank, _, found = queue.get(timeout=300)  # 30 minutes, if the timeout were not passed on
    assert rank == 0
    assert "has not answered within the timeout" in found["error"]
    assert told in found["error"]
    assert found["charged"] == charged


def test_without_a_process_group_the_way_is_told():
    X, y = processes.data()
    with pytest.raises(ValueError, match="torchrun"):
        processes.private(device=Distributed("replicated")).fit(X, y)
    with pytest.raises(ValueError, match="'both' records"):
        processes.private(device=Distributed("both")).fit(X, y)


def test_a_torch_that_waits_for_ever_at_the_end_is_refused(monkeypatch):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.7.1"))
    X, y = processes.data()
    with pytest.raises(ValueError, match=r"'replicated' records needs torch 2\.8 .*2\.7\.1"):
        processes.private(device=Distributed("replicated")).fit(X, y)
