"""Summarizes ranks in a separate process, which reads paths from stdin and writes answers to stdout."""

import os
import signal
import sys
from dataclasses import dataclass, replace

from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.ranks import RankSummary, summarize
from tracekit.analyzers.trace import ALONE, cache, reading, receive, release_freed, send, store


@dataclass(frozen=True)
class Answer:
    """The summary of a rank's trace, or the reason why there is none."""

    path: str
    summary: RankSummary | None
    why: str = ""


def summary_of(path: str, use_cache: bool = True) -> Answer:
    """Summarize a trace. An error of reading it is returned as an answer."""
    try:
        if not use_cache:
            return Answer(path, summarize(reading.load(path)))
        return Answer(
            path, cache.recall(path, RankSummary, lambda: summarize(reading.load(path)), worth=lambda _: True)
        )
    except (TracekitError, OSError, MemoryError) as error:
        return Answer(path, None, getattr(error, "why", "") or getattr(error, "what", "") or str(error))


def packed(answer: Answer) -> bytes:
    """Return an answer for another process, which knows the path."""
    why = answer.why.encode("utf-8", "replace").decode()
    return store.to_bytes(Answer("", answer.summary, why))


def unpacked(message: bytes, path: str) -> Answer:
    """Return the answer that another process packed."""
    return replace(store.from_bytes(message, Answer), path=path)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides when it ends
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    ALONE.set(True)
    while (path := receive(sys.stdin.buffer)) is not None:
        answer = summary_of(path[1:].decode("utf-8", "surrogateescape"), path[:1] == b"1")
        try:
            send(answers, packed(answer))
        except BrokenPipeError:
            return
        del answer
        release_freed()
