"""The process before an engine: it takes requests in and sends their tokens out, one after another on one core."""

from dataclasses import dataclass

from tracekit.analyzers.serving.declarations import Engine


@dataclass
class Front:
    """A queue of prompts to read and of tokens to send. The GPU does not wait for it; users do."""

    request_s: float
    token_s: float
    free_s: float = 0.0
    """Time from which on the process has nothing to do."""

    @classmethod
    def of(cls, engine: Engine) -> "Front":
        return cls(engine.number("front_ms") * 1e-3, engine.number("front_token_us") * 1e-6)

    def take(self, arrival_s: float) -> float:
        """Return when the engine has a request that arrives."""
        self.free_s = max(self.free_s, arrival_s) + self.request_s
        return self.free_s

    def send(self, now_s: float, passes: int, tokens: int) -> float:
        """Return when the tokens of the last of `passes` have been sent, of which each makes `tokens`."""
        once = tokens * self.token_s
        self.free_s = max(self.free_s + passes * once, now_s + once)
        return self.free_s
