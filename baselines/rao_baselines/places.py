"""Where results, figures and models are kept: in the source tree when there is one, in the current folder otherwise."""

from __future__ import annotations

from pathlib import Path


def source_root() -> Path | None:
    """The checkout that this package runs from; None when it is installed."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "baselines" / "configs").is_dir() else None


def results_folder() -> Path:
    """For measured results."""
    root = source_root()
    return relative(root / "baselines" / "results") if root else Path("rao-results")


def models_folder() -> Path:
    """Where small trained models are written."""
    root = source_root()
    return relative(root / "baselines" / "models") if root else Path("rao-results") / "models"


def shipped_models() -> Path:
    """Where the trained models are that come with this package: in the source tree, or inside the package once installed."""
    inside = Path(__file__).parent / "trained"  # not "models", which is a module
    return inside if inside.is_dir() else models_folder()


def images_folder() -> Path:
    """For figures that the documentation shows."""
    root = source_root()
    return relative(root / "docs" / "images") if root else Path("rao-results")


def relative(path: Path) -> Path:
    """`path` as seen from the current folder, where it lies below."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
