"""A model folder on a hub: uploaded and downloaded with `huggingface_hub` (extra `hub`).

The hub is the Hugging Face Hub, or any server with its interface. The tests of this package run against a small
stand-in on this machine, never against the public hub.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sirgcn.model.fitted import Model
from sirgcn.model.folder import load, save


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

    Example::

        push_to_hub("model", "user/cora")
    """
    hub = _hub()
    if isinstance(model, Model):
        with TemporaryDirectory() as folder:
            given = {"private": private, "token": token, "endpoint": endpoint, "message": message}
            return push_to_hub(save(model, Path(folder) / "model"), repository, **given)  # type: ignore[arg-type]
    load(model)
    api = hub.HfApi(endpoint=endpoint, token=token)
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
) -> Model:
    """Download a model folder and read it. Its hashes are checked, and nothing in it is run.

    Args:
        repository: the name of the repository, `"user/name"`.
        revision: a commit, branch or tag; default: the newest commit. A commit pins the model.
        token: for a private repository, see `push_to_hub`.
        endpoint: the address of the hub.
        cache: the folder for downloads; default: that of `huggingface_hub`.

    Raises:
        ImportError: huggingface_hub is not installed.
        FolderError: the repository holds no whole model.

    Example::

        model = from_hub("user/cora", revision="5f1c0de")
    """
    folder = _hub().snapshot_download(
        repository, revision=revision, token=token, endpoint=endpoint, cache_dir=None if cache is None else str(cache)
    )
    return load(folder)


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError(
            "hub: huggingface_hub is not installed; type: pip install 'sirgcn[hub]'"
        ) from error
    return huggingface_hub
