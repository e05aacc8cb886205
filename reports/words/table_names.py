"""The tables that an analysis is exported as, by name."""

TABLES = (
    "layers",
    "layer_types",
    "layer_parts",
    "layer_ops",
    "phases",
    "steps",
    "ops",
    "kernels",
    "ranges",
    "counters_comparison",
    "idle_causes",
    "host_causes",
    "fusion_plan",
    "predicted_work",
    "problems",
)
