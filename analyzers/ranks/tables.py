"""The tables of a job of several ranks (tables.toml has their columns)."""

from tracekit.analyzers.core import tables

_TABLES = tables(__file__)
RANK_STEPS = _TABLES["rank_steps"]
RANK_IDLE = _TABLES["rank_idle"]
RANK_CALLS = _TABLES["rank_calls"]
RANK_WORK = _TABLES["rank_work"]
RANKS = _TABLES["ranks"]
COLLECTIVES = _TABLES["job_collectives"]
GROUPS = _TABLES["job_groups"]
GROUP_WAITS = _TABLES["group_waits"]
RANK_BY_STEP = _TABLES["ranks_by_step"]
CRITICAL_PATH = _TABLES["critical_path"]
REPLAYED_WORKERS = _TABLES["replayed_workers"]
REPLAYED_PARTS = _TABLES["replayed_parts"]
REPLAYED_STEPS = _TABLES["replayed_steps"]
