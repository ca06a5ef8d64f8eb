"""
Train a private model over a network with Flower
================================================

Install Flower, and start it by

    pip install "flwr[simulation]==1.41"
    FLWR_TELEMETRY_ENABLED=0 python examples/train/federated_flower.py

Four hospitals train one model by a common :class:`~skprivacy.federated.FederatedPlan`. A client
computes the contribution of its records, adds its share of the noise, and adds a mask for each
other client. The masks cancel, so the server sees only sums. Flower carries the messages; another
engine would do as well. Keys are exchanged through the server, so it must follow the protocol. A
real federation also needs certificates, and a way to continue without a client.
"""

import os
import time

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # before the import

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

from skprivacy.accounting import PrivacyBudget
from skprivacy.federated import FederatedPlan
from skprivacy.mechanisms import PoissonSampler, SecureRandom

N_CLIENTS, N_RECORDS = 4, 1500
PLAN = FederatedPlan(
    n_features=5,
    n_outputs=1,
    n_parties=N_CLIENTS,
    n_units=N_CLIENTS * N_RECORDS,
    n_rounds=10,
    sampling_rate=0.25,
    learning_rate=1.0,
    n_untrusted=1,
).with_noise_for(epsilon=1.0, delta=1e-5, relation="zero_out")
client, server = ClientApp(), ServerApp()


def records(hospital: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the records of a hospital, which never leave it."""
    rng = np.random.default_rng(hospital)
    y = rng.integers(2, size=N_RECORDS)
    return rng.normal(size=(N_RECORDS, PLAN.n_features)) / 2 + 0.5 * y[:, None], y


@client.query()
def public_key(message: Message, context) -> Message:
    """Make a key pair, and send the public key."""
    key = X25519PrivateKey.generate()
    context.state["key"] = ConfigRecord({"private": key.private_bytes_raw()})
    public = ConfigRecord({"public": key.public_key().public_bytes_raw()})
    return Message(RecordDict({"key": public}), reply_to=message)


@client.train()
def contribute(message: Message, context) -> Message:
    """Send the contribution of the sampled records, with noise and masks."""
    weights = message.content["model"].to_numpy_ndarrays()[0]
    X, y = records(context.node_config["partition-id"])
    random = SecureRandom()
    drawn = PoissonSampler(PLAN.sampling_rate).draw(len(X), random)
    share = PLAN.mechanism.share(PLAN.contribution(weights, X[drawn], y[drawn]), random)
    share += mask(message.content["round"], context.state["key"]["private"], share.size)
    return Message(RecordDict({"share": ArrayRecord([share])}), reply_to=message)


def mask(config: ConfigRecord, private: bytes, size: int) -> np.ndarray:
    """Return the sum of the masks shared with each other client, which cancel in the total."""
    key, mine = X25519PrivateKey.from_private_bytes(private), config["place"]
    total = np.zeros(size, np.uint64)
    for place, public in enumerate(config["keys"]):
        if place != mine:
            secret = key.exchange(X25519PublicKey.from_public_bytes(public))
            once = HKDF(SHA256(), 32, None, f"round {config['number']}".encode()).derive(secret)
            stream = Cipher(ChaCha20(once, bytes(16)), None).encryptor()
            agreed = np.frombuffer(stream.update(bytes(8 * size)), np.uint64)
            total += agreed if mine < place else ~agreed + np.uint64(1)
    return total


@server.main()
def train(grid, context) -> None:
    """Charge the budget, then run the rounds."""
    while len(nodes := sorted(grid.get_node_ids())) < N_CLIENTS:
        time.sleep(1)
    asked = [Message(RecordDict(), dst_node_id=node, message_type="query") for node in nodes]
    found = {m.metadata.src_node_id: m.content["key"] for m in grid.send_and_receive(asked)}
    keys = [found[node]["public"] for node in nodes]
    weights, velocity = PLAN.start()
    budget = PrivacyBudget(epsilon=1.1, delta=1e-5)
    with budget.reserve(PLAN.event, "four hospitals", "zero_out"):
        for done in range(PLAN.n_rounds):
            model = ArrayRecord([weights])
            sent = [
                Message(
                    RecordDict({
                        "model": model,
                        "round": ConfigRecord({"keys": keys, "place": place, "number": done}),
                    }),
                    dst_node_id=node,
                    message_type="train",
                )
                for place, node in enumerate(nodes)
            ]  # fmt: skip
            answers = [
                m.content["share"].to_numpy_ndarrays()[0] for m in grid.send_and_receive(sent)
            ]
            total = PLAN.mechanism.total(np.stack(answers))
            weights, velocity = PLAN.step(weights, velocity, total, done)
    X, y = records(N_CLIENTS)  # of a fifth hospital
    right = ((X @ weights[0, :-1] + weights[0, -1] > 0) == y).mean()
    print(f"{budget}, accuracy at a fifth hospital {right:.3f}")


if __name__ == "__main__":
    run_simulation(server, client, num_supernodes=N_CLIENTS)
