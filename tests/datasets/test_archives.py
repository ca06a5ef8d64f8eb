"""Archives and idx files of the published form: read if sound, refused if not."""

import gzip
import hashlib
import io
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from skprivacy.datasets import fetch_membership_benchmark, fetch_mnist, mnist
from skprivacy.datasets import files as _files
from skprivacy.datasets import membership_benchmarks as membership
from skprivacy.datasets.files import PublishedFile, data_folder
from skprivacy.preprocessing import SchemaTransformer

N, D, K = 12, 5, 3
BITS = np.random.default_rng(0).integers(0, 2, (N, D))
LABELS = np.arange(N) % K + 1
NAMES = ["location30", "purchase100", "texas100"]


def lines(quoted, labels=LABELS, bits=BITS):
    mark = '"{}"' if quoted else "{}"
    return [
        f"{mark.format(k)},{','.join(map(str, row))}" for k, row in zip(labels, bits, strict=True)
    ]


def members(name):
    if name == "texas100":
        return {
            "texas/100/feats": [",".join(map(str, row)) for row in BITS],
            "texas/100/labels": list(map(str, LABELS)),
        }
    if name == "location30":
        return {"bangkok": lines(True)}
    return {"dataset_purchase": lines(False)}


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """Write an archive, and take it for the published one."""

    def write(name, files):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for member, content in files.items():
                if isinstance(content, tarfile.TarInfo):
                    archive.addfile(content)
                    continue
                data = ("\n".join(content) + "\n").encode()
                info = tarfile.TarInfo(member)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        table = membership._TABLES[name]
        path = tmp_path / table.file.folder / table.file.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(stream.getvalue())
        checksum = f"sha256:{hashlib.sha256(stream.getvalue()).hexdigest()}"
        sizes = {"n_samples": N, "n_features": D, "n_classes": K}
        small = replace(table, **sizes, file=replace(table.file, checksum=checksum))
        monkeypatch.setitem(membership._TABLES, name, small)
        return tmp_path

    return write


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("as_frame", [True, False])
def test_format(name, as_frame, publish):
    home = publish(name, members(name))
    bunch = fetch_membership_benchmark(name, data_home=home, as_frame=as_frame)
    np.testing.assert_array_equal(np.asarray(bunch.data), BITS)
    np.testing.assert_array_equal(np.asarray(bunch.target), LABELS)
    assert list(bunch.classes) == [1, 2, 3]
    out = SchemaTransformer(bunch.schema).fit_transform(bunch.data)
    np.testing.assert_array_equal(out, 2 * BITS - 1)
    if not as_frame:
        assert bunch.data.dtype == np.uint8
        assert bunch.data.flags.writeable
        X, _ = fetch_membership_benchmark(name, data_home=home, return_X_y=True)
        np.testing.assert_array_equal(X, BITS)


def test_other_members_are_left_alone(publish, tmp_path):
    evil = tarfile.TarInfo("../../escaped")
    files = {"x": evil, "bangkok": lines(True), "/etc/evil": ["boo"]}
    before = set(tmp_path.rglob("*"))
    assert fetch_membership_benchmark(
        "location30", data_home=publish("location30", files)
    ).data.shape == (N, D)
    after = set(tmp_path.rglob("*")) - before
    assert {path.name for path in after} == {"location", "dataset_location.tgz"}
    assert not (tmp_path.parent.parent / "escaped").exists()


def link():
    info = tarfile.TarInfo("bangkok")
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"berlin": lines(True)}, "no member bangkok"),
        ({"bangkok": link()}, "not a file of at most"),
        ({"bangkok": [line + " " * 100 for line in lines(True)]}, "not a file of at most"),
        ({"bangkok": lines(True)[:-1]}, "11 rows"),
        ({"bangkok": [*lines(True), lines(True)[0]]}, "out of bounds"),
        ({"bangkok": lines(True, labels=LABELS + 1)}, "labels 2 to 4"),
        ({"bangkok": lines(True, bits=BITS + 1)}, "other than 0 and 1"),
        ({"bangkok": lines(True, bits=BITS[:, 1:])}, "does not have 5 values"),
        ({"bangkok": [line.replace(",", ";") for line in lines(True)]}, "not hold Location-30"),
        ({"bangkok": lines(True, labels=["a"] * N)}, "invalid literal"),
    ],
)
def test_unsound_archives_are_refused(files, words, publish):
    home = publish("location30", files)
    with pytest.raises(OSError, match=words):
        fetch_membership_benchmark("location30", data_home=home)


def test_texas_labels_of_another_length(publish):
    files = members("texas100")
    files["texas/100/labels"].pop()
    with pytest.raises(OSError, match=r"shorter|longer"):
        fetch_membership_benchmark("texas100", data_home=publish("texas100", files))


@pytest.mark.parametrize("name", NAMES)
def test_one_changed_byte_is_refused_before_it_is_read(name, publish, monkeypatch):
    home = publish(name, members(name))
    table = membership._TABLES[name]
    path = home / table.file.folder / table.file.name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    monkeypatch.setattr(tarfile, "open", lambda *a, **k: pytest.fail("opened"))
    with pytest.raises(OSError, match="is not the published"):
        fetch_membership_benchmark(name, data_home=home)


@pytest.fixture
def digits(tmp_path, monkeypatch):
    """Two idx files of 3 images, taken for the published ones; returns (folder, write)."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3, 28, 28), dtype=np.uint8)
    labels = np.array([7, 0, 9], dtype=np.uint8)

    def write(name, array):
        header = np.array([0x0800 + array.ndim, *array.shape], dtype=">u4").tobytes()
        content = header + array.tobytes()
        path = tmp_path / "mnist" / f"{name}-ubyte.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(content))
        checksum = f"unzipped:{hashlib.sha256(content).hexdigest()}"
        file = PublishedFile("mnist", path.name, checksum, "http://nowhere")
        monkeypatch.setitem(mnist._FILES, name, file)
        return path

    write("train-images-idx3", images)
    write("train-labels-idx1", labels)
    monkeypatch.setitem(mnist._PARTS, "train", ("train", 3))
    return tmp_path, write, images


def test_mnist(digits):
    home, _, images = digits
    bunch = fetch_mnist(data_home=home)
    np.testing.assert_array_equal(bunch.data, images.reshape(3, 784))
    assert bunch.target.tolist() == [7, 0, 9]
    assert bunch.schema["pixel_27_27"].upper == 255
    out = SchemaTransformer(bunch.schema).fit_transform(bunch.data)
    np.testing.assert_allclose(out, 2 * (images.reshape(3, 784) / 255) - 1)


def test_mnist_compressed_in_another_way_is_the_same(digits):
    home, write, images = digits
    path = write("train-images-idx3", images)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), compresslevel=1, mtime=0))
    assert fetch_mnist(data_home=home).data.shape == (3, 784)


def test_unsound_idx_files_are_refused(digits, monkeypatch):
    home, write, images = digits
    write("train-images-idx3", images[:2])
    with pytest.raises(OSError, match="not an idx file of shape"):
        fetch_mnist(data_home=home)
    path = write("train-images-idx3", images)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(OSError, match=r"not the published.*end-of-stream"):
        fetch_mnist(data_home=home)
    path.write_bytes(gzip.compress(bytes(5000)))
    monkeypatch.setattr(_files, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(OSError, match="more than 1000 bytes"):
        fetch_mnist(data_home=home)


@pytest.mark.skipif(
    not (data_folder() / "location" / "dataset_location.tgz").is_file(),
    reason="the original file is not in SKPRIVACY_DATA",
)
def test_original_location():
    X, y = fetch_membership_benchmark("location30", return_X_y=True, download_if_missing=False)
    assert X.shape == (5_010, 446)
    assert np.bincount(y)[[1, 5, 8]].tolist() == [169, 97, 308]


@pytest.mark.skipif(
    not (data_folder() / "mnist" / "t10k-labels-idx1-ubyte.gz").is_file(),
    reason="the original files are not in SKPRIVACY_DATA",
)
def test_original_mnist():
    X, y = fetch_mnist(subset="test", return_X_y=True, download_if_missing=False)
    assert X.shape == (10_000, 784)
    assert y[:5].tolist() == [7, 2, 1, 0, 4]
