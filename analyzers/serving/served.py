"""What a simulation gives: requests with their times, the state after each pass, and sums."""

from dataclasses import dataclass, field

from tracekit.analyzers.serving.request_stream import Request


@dataclass
class Served:
    """A request with its state."""

    request: Request
    arrival_s: float
    ready_s: float = 0.0
    """When the engine has it."""
    made: int = 0
    """Number of generated tokens, as of the step `since`."""
    read: int = 0
    """Number of tokens in the cache, as of the step `since`."""
    since: int = 0
    first_s: float = float("nan")
    last_s: float = float("nan")

    @property
    def to_read(self) -> int:
        """Number of tokens to process before the next one: the prompt, and after a preemption what was generated."""
        return self.request.prompt_tokens + self.made - self.read

    @property
    def waited_s(self) -> float:
        """Time from the arrival to the first token."""
        return self.first_s - self.arrival_s

    @property
    def between_s(self) -> float:
        """Mean time between two tokens."""
        return (self.last_s - self.first_s) / (self.made - 1) if self.made > 1 else float("nan")


@dataclass(frozen=True)
class Moment:
    """The state after a pass."""

    time_s: float
    running: int
    waiting: int
    used: float
    """Part of the room of the cache that is taken."""


@dataclass
class Run:
    served: list[Served]
    refused: int = 0
    """Number of requests that do not fit an empty cache."""
    put_off: int = 0
    """Number of preemptions, in which a request returned its pages."""
    moments: list[Moment] = field(default_factory=list)
    between: list[tuple[float, int]] = field(default_factory=list)
    """Times in seconds between two tokens of a request, and the number of such pairs."""
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds by part of the passes."""
    decoding_s: float = 0.0
    """Time of the passes without prompts."""
    decoded: int = 0
    """Number of the passes without prompts."""
