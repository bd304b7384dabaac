"""Where published files come from, where they lie below the data root, and their hashes."""

from sirgcn.data.files import Archive, Raw, RawFile

BENCHMARKING = "https://github.com/graphdeeplearning/benchmarking-gnns"
CIFAR10 = "https://www.cs.toronto.edu/~kriz/cifar.html"
HETEROPHILOUS = "https://github.com/yandex-research/heterophilous-graphs"
MNIST = "http://yann.lecun.com/exdb/mnist"
MOLECULENET = "https://moleculenet.org"
OGB = "https://ogb.stanford.edu"
PLANETOID = "https://github.com/kimiyoung/planetoid"
TU = "https://chrsmrrs.github.io/datasets"
WIKICS = "https://github.com/pmernyei/wiki-cs-dataset"

_SNAP = "https://snap.stanford.edu/ogb/data"
_DEEPCHEM = "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_CIFAR10 = "md5:c32a1d4ab5d03f1284b67883e8d87530"

# The hashes of the published files, where they are known; a file of the name and another hash is refused. Compared with
# the files themselves: minesweeper, tolokers, Cora, ZINC's index files, ESOL. The others are from public records of
# downloads by third parties (several agree on MNIST, CIFAR-10, arxiv.zip and amazon_ratings; questions rests on one
# project's), not compared with a file.
_PUBLISHED = """
sha256:a58ba741d123bf892fe5c872138d07463d75a2e9012360b8dd78ac2d4766d428 roman_empire.npz
sha256:4c3a3e3b9d9f6cba0fede4625a00aad8c5721c1a36ed771367f446763241c7dd amazon_ratings.npz
sha256:e664c8dacf1e8ac466c2c09ed4b237bd2c5541f47a6eae9c6092cb87f16412b3 minesweeper.npz
sha256:dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667 tolokers.npz
sha256:757ebd772bab1475c4dd951ca9e364400c6db161656cff9d21780ee874cf3074 questions.npz
sha256:9bf8cb3ef8eeae81b25e6ccbe0ea195600c205d7edf63ce04f2ec8d9c7dcb3d8 data.json
sha256:23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab ind.cora.x
sha256:b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a ind.cora.tx
sha256:9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543 ind.cora.allx
sha256:94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1 ind.cora.y
sha256:41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad ind.cora.ty
sha256:2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71 ind.cora.ally
sha256:58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d ind.cora.graph
sha256:297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875 ind.cora.test.index
sha256:d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6 ind.citeseer.x
sha256:539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21 ind.citeseer.tx
sha256:2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668 ind.citeseer.allx
sha256:8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924 ind.citeseer.y
sha256:55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce ind.citeseer.ty
sha256:f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95 ind.citeseer.ally
sha256:d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7 ind.citeseer.graph
sha256:2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4 ind.citeseer.test.index
sha256:fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33 ind.pubmed.x
sha256:4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d ind.pubmed.tx
sha256:508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e ind.pubmed.allx
sha256:e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3 ind.pubmed.y
sha256:ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd ind.pubmed.ty
sha256:0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e ind.pubmed.ally
sha256:5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9 ind.pubmed.graph
sha256:b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5 ind.pubmed.test.index
sha256:49f85c801589ecdcc52cfaca99693aaea7b8af16a9ac3f41dd85a5f3193fe276 arxiv.zip
sha256:575d6acd72ac207a95947e2bdd16411ef6fc3faa88c2f55a2c496ea43022a6d8 train.index
sha256:fe48c38157f0d38e7fc441903a143392eda080511a79e8fb8f60f5c1b0a9c164 val.index
sha256:6aa50d98976044fb36089afef5b4c991b429ca1c8e009d33a0319e42a2d9b525 test.index
sha256:8c06a76f0c6487d29ab0f903e6a7a7139f189ab3c1178f159c8be8964602f189 delaney-processed.csv
sha256:ab5895d914ee87cb563bd7b9611e869527bba45bec6b014d34dc495a0f9dcb72 SAMPL.csv
sha256:aed41590cb30609d51d8e08ad3ff06495a76e80e211358801f596b10da69bacd Lipophilicity.csv
md5:f68b3c2dcbeaaa9fbdd348bbdeb94873 train-images-idx3-ubyte.gz
md5:d53e105ee54ea40749a09fcbcd1e9432 train-labels-idx1-ubyte.gz
md5:9fb629c4189551a2d022fa330f9573f3 t10k-images-idx3-ubyte.gz
md5:ec29112dd5afa0611ce80d1b7f02629c t10k-labels-idx1-ubyte.gz
"""

# Files that may stand in a published one's place, and what they are. All but bace.csv and the published BBBP.csv, which
# one third-party record names, were hashed here.
_COPIES = """
c350eef06b2c2a9bf8218be2b57cac6d4003d0922eb597a039e9123f75817816 actor.npz as published
f06370ffb3116c5de8b7a600005400b2293c025e0ce2f6916d8201a825505ac7 squirrel_filtered.npz as published
b164b99e6c3d43e4ab07488ec59bd8c815f90cbc1bd4cf425ce587d2b534d844 texas.npz as published
2543c89838cfc75f737f7c4664cc1d097f8268602c20b2d1bd4f21407df9c074 wisconsin.npz as published
684c54ba3daa13b0ba1f04a3d6dd1b1175c1ae9bdeb982851fd4ff96d3aac298 cornell.npz as published
d9656ca7493f3445d737c711710bb36fd432dddd1c0ea32e1d4713c86ebd28e2 MUTAG_A.txt as published
4669ce755075ff86c3240709345745886400908fa637a49310459b9c267b3e56 MUTAG_edge_labels.txt as published
7d520a4d6c7961c0cdeabe076d8fe27e795b6d373485c9a2b744987e560a2056 MUTAG_graph_indicator.txt as published
a1518ea39ba3426bd42f57396b9c4baffe68e9adc718caeeab0119c6591a5f2c MUTAG_graph_labels.txt as published
678f429965490e84dd27713017538c995fc05d1621beac910848b600015ee863 MUTAG_node_labels.txt as published
34c10e0f0b15dbc178c3ce4ad9774decc6a202776a31763f5a899309c97497ee BBBP.csv the copy of AttentiveFP
d07a38487aeac5cee5508413e468043ef3097451d2a112701c2d60be9ec6b662 BBBP.csv as published
f3fb9ce90bada3e2bd6148b0df13f8f8145a357bf87df0dd5b391ede974fc737 bace.csv as published
4dcfe0b340f9eb24004968a2db88bc30ca8d2f0fd6204b3a7e68a4e33269efd6 train.pickle rebuilt ZINC-12k
0104894cd77d46675126e738a2cc016e0b1d6aa95ff274c637ee9369832d3338 val.pickle rebuilt ZINC-12k
671e6d3af83ddbd72f38930ae1b383e3582d3a1e48e3993af9e5656d535cf8b4 test.pickle rebuilt ZINC-12k
bd90786c543d8015282c17cea46ef8479573f96f9560900013070b506699b57c zinc12k.npz rebuilt ZINC-12k
34e1e8d6ee93232df46708b6004ad4d2396677f616605721b3ac821fa811cb76 raw/edge-feat.csv.gz rebuilt ogbg-molhiv
32ec6c3ae48f32992014923ce560639792982abc38551a9bccd795cd1c31f495 raw/edge.csv.gz rebuilt ogbg-molhiv
59be21013b5c39c23e87404711f8428431f9dac59bd7199f51cea7f8469d3a8a raw/graph-label.csv.gz rebuilt ogbg-molhiv
0ac07910c153cbd8531a7a444cbc18ff2ff900c936d7e00acb0cb217a0dff612 raw/node-feat.csv.gz rebuilt ogbg-molhiv
3a95fc75ca70948c38605b31f8610c0074e57a98777f3d7f10b1fb059871c85d raw/num-edge-list.csv.gz rebuilt ogbg-molhiv
3b2bb442233fc9c28f96f4ce136d5fe514ef3800909599d62457302946139d15 raw/num-node-list.csv.gz rebuilt ogbg-molhiv
e09bbc00acbba7acf9e0aeea365bf9f112f87654c6309e8dd848609042e524d8 split/scaffold/test.csv.gz rebuilt ogbg-molhiv
ba2c666bc7dee89a070f08aa90f6809b24f7c822f5f0d408fa704af42a8e6af6 split/scaffold/train.csv.gz rebuilt ogbg-molhiv
1eb98bb5489cbdfa0a0e58ae681c3c2899acf8ee043730f1e734e08e7ed9fde0 split/scaffold/valid.csv.gz rebuilt ogbg-molhiv
0b367032e93c5d0cea0925647cfdb18614af8ee15f83e6f2fc2ad904a6835971 train-images-idx3-ubyte.gz as published, repacked
1787548bbe0bff1ec2ecdc0ef292b02df999e2d1a6002d27500982c652b17203 train-labels-idx1-ubyte.gz as published, repacked
1a1a05eab793c14bb050b398624a11b0ffd1a2953baed553b1b9bd079e2a20be t10k-images-idx3-ubyte.gz as published, repacked
b91679a0acfe4ba0e50a2437a903084cba1f5f92592b016a25a7dfd00455798b t10k-labels-idx1-ubyte.gz as published, repacked
"""

PUBLISHED = {name: digest for digest, name in (line.split() for line in _PUBLISHED.split("\n") if line)}
COPIES = [line.split(maxsplit=2) for line in _COPIES.split("\n") if line]


def heterophilous(file: str) -> tuple[Raw, ...]:
    """One .npz of the heterophilous graphs."""
    files = (_file(f"{file}.npz", f"{HETEROPHILOUS}/raw/main/data"),)
    return Raw(f"heterophilous/{file}/raw", files), Raw("heterophilous/extra", files)


def wikics() -> tuple[Raw, ...]:
    """WikiCS."""
    return (Raw("wikics/raw", (_file("data.json", f"{WIKICS}/raw/master/dataset"),)),)


def planetoid(name: str) -> tuple[Raw, ...]:
    """The eight files of Cora, CiteSeer or PubMed."""
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(_file(f"ind.{name.lower()}.{part}", f"{PLANETOID}/raw/master/data") for part in parts)
    return (Raw(f"planetoid/{name}/raw", files),)


def zinc() -> tuple[Raw, ...]:
    """ZINC's molecules and the places of the 12,000, or the compact copy."""
    places = f"{BENCHMARKING.replace('github.com', 'raw.githubusercontent.com')}/master/data/molecules"
    parts = ("train", "val", "test")
    files = (*(_file(f"{part}.pickle") for part in parts), *(_file(f"{part}.index", places) for part in parts))
    archive = Archive("https://www.dropbox.com/s/feo9qle74kg48gy/molecules.zip?dl=1", "molecules")
    return (
        Raw("zinc12k/ZINC/raw", files, archive),
        Raw("zinc12k", (_file("zinc12k.npz"),)),
        Raw("ZINC/raw", files, archive),
    )


def benchmark(name: str) -> tuple[Raw, ...]:
    """PyG's copy of a set of Benchmarking GNNs."""
    archive = Archive(f"https://data.pyg.org/datasets/benchmarking-gnns/{name}_v2.zip")
    return (Raw(f"benchmarking-gnns/{name}/raw", (_file(f"{name}_v2.pt"),), archive),)


def tu(name: str, *parts: str) -> tuple[Raw, ...]:
    """A set of the TU collection; `parts` beyond those that all have."""
    every = ("A", "graph_indicator", "graph_labels", *parts)
    archive = Archive(f"https://www.chrsmrrs.com/graphkerneldatasets/{name}.zip", name)
    return (Raw(f"tu/{name}/raw", tuple(_file(f"{name}_{part}.txt") for part in every), archive),)


def moleculenet(folder: str, file: str) -> tuple[Raw, ...]:
    """A table of MoleculeNet, packed as it is published or unpacked as PyG leaves it."""
    layouts = [Raw(f"moleculenet/{folder}/raw", (_file(file, _DEEPCHEM),))]
    if file.endswith(".gz"):
        layouts.append(Raw(f"moleculenet/{folder}/raw", (_file(file.removesuffix(".gz")),)))
    return tuple(layouts)


def arxiv() -> tuple[Raw, ...]:
    """ogbn-arxiv."""
    files = [f"raw/{name}" for name in ("node-feat", "node-label", "edge")] + [
        f"split/time/{name}" for name in _OGB_PARTS
    ]
    return _ogb("ogbn-arxiv", files, Archive(f"{_SNAP}/nodeproppred/arxiv.zip", "arxiv", PUBLISHED["arxiv.zip"]))


def molhiv() -> tuple[Raw, ...]:
    """ogbg-molhiv."""
    names = ("node-feat", "edge-feat", "edge", "graph-label", "num-node-list", "num-edge-list")
    files = [f"raw/{name}" for name in names] + [f"split/scaffold/{name}" for name in _OGB_PARTS]
    return _ogb("ogbg-molhiv", files, Archive(f"{_SNAP}/graphproppred/csv_mol_download/hiv.zip", "hiv"))


def mnist() -> tuple[Raw, ...]:
    """The images of MNIST."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    files = tuple(_file(f"{name}-ubyte.gz", _MNIST) for name in names)
    return Raw("mnist/MNIST/raw", files), Raw("MNIST/raw", files)


def cifar10() -> tuple[Raw, ...]:
    """The images of CIFAR-10: its binary version, or PNG files of one image a row, of which some may be left out."""
    archive = Archive(f"{CIFAR10.rsplit('/', 1)[0]}/cifar-10-binary.tar.gz", "cifar-10-batches-bin", _CIFAR10)
    batches = [f"data_batch_{number}" for number in range(1, 6)]
    binary = tuple(_file(f"{name}.bin") for name in (*batches, "test_batch"))
    # The misspelling is the publisher's.
    labels = ("train_lables.json", "test_lables.json")
    images = ([f"{name}.png" for name in (*found, "test_batch")] for found in (batches, batches[:1]))
    return (
        Raw("cifar10/cifar-10-batches-bin", binary, archive),
        Raw("cifar-10-batches-bin", binary, archive),
        *(Raw("cifar10", tuple(_file(name) for name in (*names, *labels))) for names in images),
    )


_OGB_PARTS = ("train", "valid", "test")


def _file(name: str, folder: str | None = None) -> RawFile:
    known = tuple((digest, label) for digest, copy, label in COPIES if copy == name)
    return RawFile(name, f"{folder}/{name}" if folder else None, PUBLISHED.get(name), known)


def _ogb(name: str, files: list[str], archive: Archive) -> tuple[Raw, ...]:
    raw = tuple(_file(f"{file}.csv.gz") for file in files)
    own = name.replace("-", "_")
    return Raw(f"{name}/{own}", raw, archive), Raw(own, raw, archive)
