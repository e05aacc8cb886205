"""The tools: the answers of the commands as plain values, short enough for a model's context.

Paths outside the folders that a program may read are refused, even if reached through a link.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.analyzers.core import InputError
from tracekit.answer import analyze, compare, predict
from tracekit.check import Configuration, Options, check, configuration, folder_of, names_in, save
from tracekit.jobs import ranks_and_files
from tracekit.reports.answer import brief, prediction, row_detail
from tracekit.reports.check import export as check_export
from tracekit.reports.compare import export as comparison_export
from tracekit.reports.ranks import export as ranks_export
from tracekit.reports.words import printable
from tracekit.run import FILES, holds_settings

_MOST_FILES = 20_000


@dataclass(frozen=True)
class Roots:
    """Folders with their links resolved."""

    folders: tuple[Path, ...]

    @classmethod
    def of(cls, folders: Sequence[str | Path]) -> "Roots":
        """Resolve folders. Raises InputError for a path that is not a folder."""
        resolved = tuple(Path(folder).resolve() for folder in folders)
        for folder, path in zip(folders, resolved, strict=True):
            if not path.is_dir():
                raise InputError(f"{folder} cannot be a root.", "It is not a folder.", "Name folders with --root.")
        return cls(resolved)

    def path(self, text: str) -> Path:
        """Return an existing file or folder inside the roots. Raises InputError for anything else.

        Paths are relative to the first root. Links are followed before a path is judged: also those of all files in a
        folder, and of the files of a run that are read beside its trace.
        """
        resolved = self._inside(text)
        beside = resolved.rglob("*") if resolved.is_dir() else map(resolved.parent.joinpath, FILES)
        for at, each in enumerate(beside):
            if at >= _MOST_FILES or not self.holds(each):
                why = (
                    "It holds too many files." if at >= _MOST_FILES else "A link in it leads out of the given folders."
                )
                raise InputError(f"{text!r} cannot be read.", why, "Name a folder with nothing but traces.")
        return resolved

    def holds(self, path: Path) -> bool:
        """Return whether a path, its links followed, lies in one of the roots."""
        try:
            resolved = path.resolve()
        except (OSError, RuntimeError, ValueError):  # a loop of links, or a name that is not text
            return False
        return any(resolved.is_relative_to(folder) for folder in self.folders)

    def _inside(self, text: str) -> Path:
        refused = InputError(
            f"{text!r} cannot be read.",
            "It is not a path inside the folders that this server was given.",
            f"Name a trace or a run's folder below {', '.join(map(str, self.folders))}.",
        )
        if not text or "\0" in text or "://" in text or text == "-":
            raise refused
        try:
            resolved = (self.folders[0] / text).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise refused from error
        if not self.holds(resolved):
            raise refused
        return resolved


MOST_ROWS, MOST_CHARACTERS = 16, 1600

Answer = dict[str, Any]


class Tools:
    """The tools, confined to some folders. Without `allow_write`, they write nothing but the cache."""

    def __init__(self, roots: Roots, *, allow_write: bool = False) -> None:
        self._roots, self._allow_write = roots, allow_write

    def analyze(self, trace: str) -> Answer:
        """Analyze a trace or a run's folder: verdict, evidence by id, and first steps with predicted intervals."""
        path = self._roots.path(trace)
        return told(brief.to_dict(analyze(path), trace, repeatable=holds_settings(path)))

    def show(self, trace: str, row: str) -> Answer:
        """Show one row of an analysis by its id, such as layer:lm_head, op:aten::mm, cause:sync or advice:compile."""
        return told(row_detail.row_detail(analyze(self._roots.path(trace)), row))

    def predict(self, trace: str, apply: str = "", gpu: str = "", batch_size: int = 0) -> Answer:
        """Predict a run with optimizations (ids joined with +), on another GPU, or at another batch size."""
        predicted = predict(self._roots.path(trace), apply, gpu or None, batch_size or None)
        return told(prediction.to_dict(predicted))

    def compare(self, a: str, b: str) -> Answer:
        """Compare a step of run B with one of run A: what takes more or less time, by family, layer, op and kernel."""
        comparison = compare(self._roots.path(a), self._roots.path(b))
        answer = comparison_export.to_dict(comparison)
        for table in ("layers", "ops", "kernels"):
            answer[table] = sorted(answer[table], key=lambda row: -abs(row["change_us"] or 0.0))
        return told(answer)

    def ranks(self, folder: str) -> Answer:
        """Find the rank that delays a distributed job, why, and what it costs, from a folder with a trace of each
        rank."""
        return told(ranks_export.to_dict(ranks_and_files(self._roots.path(folder), workers=1).job))

    def sweep(
        self,
        model: str,
        gpus: list[str],
        batch_sizes: list[int] | None = None,
        seq_lens: list[int] | None = None,
        apply: list[str] | None = None,
        workload: str = "prefill",
    ) -> Answer:
        """Predict a model over GPUs, batch sizes, lengths and optimizations (ids joined with +), and name its
        crossovers. MODEL is one that tracekit bundles, such as gpt2, or a folder with a config.json. Nothing runs."""
        return told(sweep(self._roots, model, gpus, batch_sizes or [1, 8, 32], seq_lens or [0], apply or [], workload))

    def check(self, runs: list[str], against: list[str], counters_only: bool = False) -> Answer:
        """Check runs of the same thing against a baseline by name, or against other runs: pass, improved, regressed or
        inconclusive, with the culprits. With counters_only, only counters are compared."""
        options = Options(counters_only=counters_only, baselines=self._baselines())
        by_name = len(against) == 1 and against[0] in names_in(options.baselines or Path())
        other: Sequence[str | Path] = against if by_name else [self._existing(each) for each in against]
        answer = check_export.to_dict(check([self._roots.path(run) for run in runs], other, options))
        answer["times"] = [row for row in answer["times"] if row["kind"] == "latency" or row["outcome"] != "pass"]
        answer["counters"] = [row for row in answer["counters"] if row["outcome"] != "pass"]
        return told(answer)

    def save_baseline(self, name: str, runs: list[str]) -> Answer:
        """Save runs of the same thing as a baseline. Allowed only if the server was started with --allow-write."""
        if not self._allow_write:
            raise InputError(
                "No baseline can be saved.", "This server only reads.", "Start it with: tracekit mcp --allow-write."
            )
        return told(
            {"saved": save(name, [self._roots.path(run) for run in runs], Options(baselines=self._baselines()))}
        )

    def _existing(self, text: str) -> Path:
        """Return an existing run. If there is neither a run nor a baseline of this name, the error lists the
        baselines."""
        path = self._roots.path(text)
        if not path.exists():
            names = ", ".join(names_in(self._baselines())) or "none"
            raise InputError(
                f"There is neither a baseline nor a run {text!r}.",
                f"Baselines: {names}.",
                "Name one of them, or a run.",
            )
        return path

    def _baselines(self) -> Path:
        """Return the folder of the baselines: that of the settings, or the usual one if theirs is outside the roots.
        Raises InputError if a file in it leads out of them."""
        settings, root = configuration(self._roots.folders[0])
        folder = folder_of(Options(), settings, root)
        usual = self._roots.folders[0] / Configuration().baselines
        return self._roots.path(str(folder if self._roots.holds(folder) else usual))


def told(value: Any) -> Answer:
    """Return an answer with short printable texts and lists, and a warning about the names in it."""
    return {"untrusted": brief.UNTRUSTED, **_plain(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        text = "\n".join(map(printable, value.split("\n")))
        return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"
    if isinstance(value, dict):
        return {printable(str(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        kept = [_plain(each) for each in value[:MOST_ROWS]]
        return [*kept, f"… {len(value) - MOST_ROWS} more"] if len(value) > MOST_ROWS else kept
    return value


_MOST_POINTS = 48


def sweep(
    roots: Roots,
    model: str,
    gpus: Sequence[str],
    batch_sizes: Sequence[int],
    seq_lens: Sequence[int],
    apply: Sequence[str],
    workload: str,
) -> dict[str, Any]:
    """Return the crossovers in words, and the points. Raises TracekitError for anything that cannot be modelled."""
    from tracekit.capture import WORKLOADS
    from tracekit.measure import sweeping
    from tracekit.reports.measure import basis, sentences
    from tracekit.reports.words import plain_rows, public

    if workload not in WORKLOADS:
        raise InputError(f"There is no workload {workload!r}.", f"Workloads: {', '.join(WORKLOADS)}.", "Name one.")
    _check_numbers(batch_sizes, seq_lens)
    points = len(gpus) * len(batch_sizes) * len(seq_lens) * (len({*apply} - {"none"}) + 1)
    if points > _MOST_POINTS:
        raise InputError(f"The sweep has {points:,} points.", f"It may have {_MOST_POINTS}.", "Leave some values out.")
    rows = sweeping.sweep(
        _model(roots, model),
        gpu=gpus,
        batch_size=batch_sizes,
        seq_len=seq_lens,
        apply=apply or sweeping.APPLY[:1],
        workload=workload,
    )
    return {
        "model": model,
        "workload": workload,
        "basis": basis(rows),
        "crossovers": sentences(rows),
        "points": plain_rows(public(rows)),
    }


def _check_numbers(batch_sizes: Sequence[int], seq_lens: Sequence[int]) -> None:
    if any(batch < 1 for batch in batch_sizes) or any(length < 0 for length in seq_lens):
        raise InputError("The sweep has an impossible size.", "Batch sizes begin at 1.", "Name other sizes.")


def _model(roots: Roots, model: str) -> str:
    """Return a model that needs neither the network nor a file outside the roots."""
    from tracekit.capture import bundled

    if any(model.lower() in spec.names for spec in bundled()):
        return model
    folder: Path | None = roots.path(model) if model else None
    if folder is None or not (folder / "config.json").is_file():
        raise InputError(
            f"There is no model {model!r}.",
            "It is not bundled, and no folder with a config.json inside the folders of this server.",
            f"Name one of {', '.join(spec.name for spec in bundled()[:12])}, ...",
        )
    return str(folder)
