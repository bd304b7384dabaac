"""A model folder on a hub: uploaded and downloaded with `huggingface_hub` (extra `hub`).

The hub is the Hugging Face Hub, or any server with its interface. The tests of this package run against a small
stand-in on this machine, never against the public hub.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sirgcn.files import write_folder
from sirgcn.model.fitted import Model
from sirgcn.model.folder import check_place, load, save
from sirgcn.model.verified import MANIFEST, OPTIONAL, REQUIRED
from sirgcn.strict import ConfigError


def push_to_hub(
    model: Model | str | Path,
    repository: str,
    *,
    private: bool = False,
    token: str | None = None,
    endpoint: str | None = None,
    message: str = "A model of sirgcn",
) -> str:
    """Upload a model folder in one commit, and return the address of that commit.

    The folder is read and checked first, so that a broken one is never uploaded. A repository that does not exist is
    created.

    Args:
        model: a model, or the folder of one.
        repository: the name of the repository, `"user/name"`.
        private: whether a new repository is private.
        token: what proves who you are; default: what `hf auth login` stored, or `$HF_TOKEN`.
        endpoint: the address of the hub; default: that of `huggingface_hub`.
        message: the first line of the commit.

    Raises:
        ImportError: huggingface_hub is not installed.

    >>> with TemporaryDirectory() as folder:  # what is no model never leaves this machine
    ...     push_to_hub(folder, "user/cora")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sirgcn.model.verified.FolderError: ...: expected the folder of a model, got one without manifest.json
    """
    _check(repository)
    if isinstance(model, Model):
        with TemporaryDirectory() as folder:
            given = {"private": private, "token": token, "endpoint": endpoint, "message": message}
            return push_to_hub(save(model, Path(folder) / "model"), repository, **given)  # type: ignore[arg-type]
    load(model)
    with _answered(endpoint):
        api = _hub().HfApi(endpoint=endpoint, token=token)
        api.create_repo(repository, private=private, exist_ok=True)
        made = api.upload_folder(repo_id=repository, folder_path=model, commit_message=message)
    return str(made.commit_url)


def from_hub(
    repository: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
    cache: str | Path | None = None,
    folder: str | Path | None = None,
) -> Model:
    """Download a model folder and read it. Its hashes are checked, and nothing in it is run.

    Args:
        repository: the name of the repository, `"user/name"`.
        revision: a commit, branch or tag; default: the newest commit. A commit pins the model.
        token: for a private repository, see `push_to_hub`.
        endpoint: the address of the hub.
        cache: the folder for downloads; default: that of `huggingface_hub`.
        folder: a new folder that keeps the model, for `sirgcn predict`; None: none.

    Raises:
        ImportError: huggingface_hub is not installed.
        FolderError: the repository holds no whole model.

    >>> from_hub("cora")  # a repository belongs to somebody
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: repository: expected a name such as user/cora, got 'cora'
    """
    _check(repository)
    names = [MANIFEST, *REQUIRED, *OPTIONAL]
    with _answered(endpoint):
        found = Path(
            _hub().snapshot_download(
                repository,
                revision=revision,
                token=token,
                endpoint=endpoint,
                cache_dir=None if cache is None else str(cache),
                allow_patterns=names,
            )
        )
    # The cache has links to files; a model folder has files, and nothing besides them.
    files = {name: (found / name).read_bytes() for name in names if (found / name).is_file()}
    with TemporaryDirectory() as parent:
        place = Path(parent) / "model"
        write_folder(place, files)
        model = load(place)
    if folder is not None:
        check_place(Path(folder))
        write_folder(Path(folder), files)
    return model


def _check(repository: str) -> None:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ConfigError(f"repository: expected a name such as user/cora, got {repository!r}")


@contextmanager
def _answered(endpoint: str | None) -> Iterator[None]:
    """Turn what the HTTP client of `huggingface_hub` raises, which differs by version, into an error of the system."""
    try:
        yield
    except (OSError, ValueError, ImportError):
        raise
    except Exception as error:
        address = endpoint or "https://huggingface.co"
        raise ConnectionError(f"{address}: expected an answer of a hub, got: {error}") from error


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError("hub: huggingface_hub is not installed; type: pip install 'sirgcn[hub]'") from error
    return huggingface_hub
