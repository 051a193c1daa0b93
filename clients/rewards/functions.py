"""Reward functions by name: beside the file that names them, else installed.

A module beside an experiment's file is found wherever one works, from the wheel, and in
processes that Flower starts, because the file's folder is part of the config. It gets a
name of its own, so that ``rewards.py`` of two experiments are two modules; what it
imports in turn is looked for in its folder only after everything installed.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from wallflower.protocol.errors import ConfigError

_KEY = "rewards.function"


def find_function(name: str, folder: Path | None = None) -> Callable[[str, str], Any]:
    """Import ``module:function``; a mistake is named."""
    module_name, _, attribute = name.partition(":")
    path = None if folder is None else _module_in(folder, module_name)
    try:
        module = (
            importlib.import_module(module_name)
            if path is None
            else _load_file(module_name, path)
        )
    except ModuleNotFoundError as error:
        if path is not None or error.name != module_name.split(".")[0]:
            raise _failing(path, module_name, error) from None
        beside = "" if folder is None else f"; nor is it in {folder}"
        raise ConfigError(_KEY, f"cannot import: {error}{beside}") from None
    except Exception as error:
        raise _failing(path, module_name, error) from None
    function = getattr(module, attribute, None)
    if not callable(function):
        raise ConfigError(_KEY, f'{path or module_name} has no function "{attribute}"')
    _check_call(function, path or module_name, attribute)
    found: Callable[[str, str], Any] = function
    return found


def _check_call(function: Callable[..., Any], where: Path | str, name: str) -> None:
    """Refuse a function that cannot be called as a run calls it."""
    try:
        inspect.signature(function).bind("arm", "user")
    except TypeError as error:
        raise ConfigError(
            _KEY, f'"{name}" of {where} is called with (arm, user): {error}'
        ) from None
    except ValueError:
        return  # written in C, without a signature


def _failing(path: Path | None, name: str, error: Exception) -> ConfigError:
    failure = failure_in("" if path is None else str(path), error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        failure = f"{failure} ({error.name} is not installed)"
    return ConfigError(_KEY, f"{path or name} fails on import: {failure}")


def failure_of(function: Callable[[str, str], Any], error: BaseException) -> str:
    """Say how a function failed: the kind of its error, and where it stands."""
    code = getattr(function, "__code__", None)
    return failure_in(getattr(code, "co_filename", ""), error)


def failure_in(file: str, error: BaseException) -> str:
    """Say what kind of error it is and in which line of a file; never its own words.

    They may be anything, a reward among it; where it stands is enough to mend it.
    """
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{kind} in {Path(error.filename or file).name}:{error.lineno}"
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == file]
    if lines:
        return f"{kind} in {Path(file).name}:{lines[-1]}"
    return f"{kind} when called with (arm, user)" if file else kind


def _module_in(folder: Path, name: str) -> Path | None:
    relative = Path(*name.split("."))
    for path in (relative.with_suffix(".py"), relative / "__init__.py"):
        if (folder / path).is_file():
            return (folder / path).resolve()
    return None


def _load_file(name: str, path: Path) -> ModuleType:
    """Import a file, once in a process."""
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    known_as = f"_beside_{digest}_{name.replace('.', '_')}"
    if known_as in sys.modules:
        return sys.modules[known_as]
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(known_as, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[known_as] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[known_as]
        raise
    return module
