"""Reads and writes run.json, and keeps a run from replacing a run of something else."""

import os
from collections.abc import Sequence
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from tracekit.analyzers.core import Count, InputError, TracekitError, decoded, limits
from tracekit.analyzers.trace import is_secret_key, looks_secret, trace_file
from tracekit.reports.words import write_atomically
from tracekit.run import environment, seal
from tracekit.run.environment import Say, place
from tracekit.run.folder import RUN, TRACE
from tracekit.run.settings import Settings
from tracekit.version import __version__

_KINDS = {**get_type_hints(Settings), "output": str}
_HINT = "Name a run's folder, which tracekit profile --model NAME writes."
_IN_PYTHON = "Measure it in Python: tracekit.verify(model, inputs, apply=[...])."
_PROFILE = "tracekit profile --model NAME -o DIRECTORY."
_KEPT_SECRET = "(secret)"


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of run.json. One of `settings`, `module`, `script` and `bench` says what was run; a block of code
    that `tracekit.capture` recorded has the script that it is part of, or none."""

    tracekit: str = ""
    """Version that recorded it."""
    settings: dict[str, Any] = {}
    """Settings of a run of a model by its name."""
    module: str = ""
    """Class of a module that tracekit.profile got."""
    script: str = ""
    """A script, relative to the folder in which it was started."""
    arguments: list[str] = []
    digest: str = ""
    """SHA-256 of the script."""
    seal: str = ""
    """Shows that this user's tracekit wrote script, arguments and digest; "" if an argument was not kept."""
    block: bool = False
    """Whether only blocks of the script were recorded."""
    ranks: Count = 1
    """Processes of the job that it is one rank of."""
    bench: list[str] = []
    """Models of a bench, whose folder contains the runs that its predictions start from."""
    gpu: str = ""
    """Id of the GPU that it was measured on, modelled for or projected to; "" if there is none or it is unknown."""
    device: str = ""
    """cuda, cpu or model."""
    workload: str = ""
    dtype: str = ""
    """That of most weights; "" if it is unknown."""
    batch_size: Count = 0
    """0: unknown."""
    versions: dict[str, str] = {}

    @property
    def described(self) -> str:
        """What was run, in a few words."""
        if self.settings:
            words = [self.settings.get("name") or self.settings.get("model"), *map(self.settings.get, _WORDS)]
            return " ".join(str(word) for word in words if word)
        if self.block:
            return f"blocks of {self.script}" if self.script else "blocks of code"
        what = " ".join([self.script, *self.arguments]) or self.module or ("a bench" if self.bench else "")
        return " ".join(filter(None, (what or "something unknown", self.gpu)))


_WORDS = ("workload", "gpu")


def run_of_settings(settings: Settings) -> Run:
    return Run(
        settings=settings.as_dict(),
        gpu=settings.gpu,
        device=settings.device,
        workload=settings.workload,
        dtype=settings.dtype,
        batch_size=settings.batch_size,
    )


def run_of_script(script: Path, arguments: Sequence[str], *, block: bool = False) -> Run:
    """Return the run of a script. Arguments that look like secrets are not kept."""
    kept = [_KEPT_SECRET if _is_secret(arguments, at) else each for at, each in enumerate(arguments)]
    name, digest = os.path.relpath(script), sha256(script.read_bytes()).hexdigest()
    signed = seal.seal_of(name, kept, digest) if _KEPT_SECRET not in kept else ""
    here = place()
    return Run(
        script=name,
        arguments=kept,
        digest=digest,
        seal=signed,
        block=block,
        ranks=here.world_size if here else 1,
    )


def _is_secret(arguments: Sequence[str], at: int) -> bool:
    key, _, value = arguments[at].rpartition("=")
    key = key or (arguments[at - 1] if at and arguments[at - 1].startswith("-") else "")
    named = is_secret_key(key) and "env" not in key.lower() and not value.startswith("-")
    return named or looks_secret("", value)


def write(run: Run, folder: Path) -> None:
    """Write run.json, with the versions of packages."""
    written = msgspec.structs.replace(run, tracekit=__version__, versions=environment.versions())
    write_atomically(folder / RUN, msgspec.json.format(msgspec.json.encode(written), indent=2).decode() + "\n")


def read(folder: Path) -> Run:
    """Read a folder's run.json. Raises InputError if it is missing or invalid."""
    path = folder / RUN
    if folder.is_dir() and not path.is_file():
        trace_file(folder)
    return decoded(path, msgspec.json.Decoder(Run).decode, _HINT, limits.SETTINGS)


def holds_settings(folder: Path) -> bool:
    """Return whether this is the folder of a run of a model, which can be repeated."""
    try:
        return bool(read(folder).settings)
    except InputError:
        return False


def settings_of(folder: Path) -> Settings:
    """Return the settings of a run of a model. Raises InputError if run.json is invalid, or of something else."""
    run = read(folder)
    if not run.settings:
        raise InputError(f"{folder} has no settings of a model.", *_not_a_model(run, folder))
    try:
        return Settings(**{name: _value(name, run.settings[name]) for name in _KINDS if name in run.settings})
    except (msgspec.ValidationError, TypeError) as error:
        why = str(error) if isinstance(error, msgspec.ValidationError) else "It does not contain the settings of a run."
        raise InputError(f"{folder / RUN} cannot be read.", why, _HINT) from error


def _not_a_model(run: Run, folder: Path) -> tuple[str, str]:
    """Return why a run has no settings of a model, and what to do instead."""
    if run.module:
        return f"It is a run of the module {run.module}, which only your code can build.", _IN_PYTHON
    if run.bench:
        held = next(folder.glob(f"*/*/{RUN}"), None)
        named = f"Name one of its runs, such as {held.parent}." if held else f"Record one: {_PROFILE}"
        return f"It is the folder of a bench of {', '.join(run.bench)}.", named
    if run.script:
        return f"It is a run of {run.described}.", f"Apply optimizations with: tracekit verify {folder}"
    return "It is a block of code that no script contains.", _IN_PYTHON


def _value(name: str, stored: object) -> Any:
    try:
        return msgspec.convert(stored, _KINDS[name])
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"Setting {name}: {error}.") from error


_IDENTITY = ("model", "workload", "gpu", "device")
"""Settings that identify a run. Other settings are its parameters."""
_PARAMETERS = ("batch_size", "seq_len", "new_tokens", "dtype", "attention", "weights")


def check_folder(settings: Settings, force: bool, say: Say) -> None:
    """Raise TracekitError if the folder contains a run of another model, workload or GPU, unless `force`.

    A run with other parameters is replaced, which `say` reports.
    """
    existing = _stored_run(settings.folder)
    if existing is None or force:
        return
    stored, new = existing.settings, settings.as_dict()
    if not stored or any(stored.get(name, new[name]) != new[name] for name in _IDENTITY):
        raise _refused(settings.folder, existing)
    changed = [f"{name} {stored[name]}" for name in _PARAMETERS if stored.get(name, new[name]) != new[name]]
    if changed:
        say(f"replacing the run in {settings.folder} ({', '.join(changed)})")


def check_replaced(run: Run, folder: Path, force: bool) -> None:
    """Raise TracekitError if the folder contains another run than this script, block or module, unless `force`."""
    existing = _stored_run(folder)
    if existing is not None and not force and not _is_same(existing, run):
        raise _refused(folder, existing)


def unused_folder(run: Run, folder: Path) -> Path:
    """Return the folder if it is free or contains this run, else the first such folder among FOLDER-2, FOLDER-3, ..."""
    for number in count(1):
        numbered = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        existing = _stored_run(numbered)
        if existing is None or _is_same(existing, run):
            return numbered
    raise AssertionError


def _is_same(existing: Run, run: Run) -> bool:
    """Return whether both are the same run, so that one may replace the other.

    A script that has changed, or gets other arguments, is another run. A block is named by its code, and so replaces
    what the same script recorded there before.
    """
    if run.block:
        return existing.block and existing.script == run.script
    return not existing.settings and not existing.bench and _identity(existing) == _identity(run)


def _identity(run: Run) -> tuple[object, ...]:
    return run.module, run.script, run.arguments, run.digest, run.block, run.gpu, run.device, run.workload


def _stored_run(folder: Path) -> Run | None:
    """Return the run in the folder; an empty one if it is unknown, None if there is neither run.json nor a trace."""
    if not (folder / RUN).is_file():
        return Run() if (folder / TRACE).exists() else None
    try:
        return read(folder)
    except InputError:
        return Run()


def _refused(folder: Path, existing: Run) -> TracekitError:
    return TracekitError(
        f"{folder} contains a run of {existing.described}.",
        "It would be overwritten.",
        "Name another folder with -o (output=...), or replace it with --force (force=True).",
    )
