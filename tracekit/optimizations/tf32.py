"""fp32 GEMMs on tensor cores, with inputs rounded to TF32."""

from dataclasses import replace

from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.evidence import Statements
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.prediction.values import Costs
from tracekit.analyzers.transforms.by_cost import Rows, where
from tracekit.analyzers.transforms.named_products import in_precision, now_in, retimed_by_name
from tracekit.analyzers.transforms.outcome import Outcome
from tracekit.analyzers.transforms.retime import retimed
from tracekit.optimizations.base import Optimization, refused
from tracekit.optimizations.shared.reasons import largest, say, share_of
from tracekit.subjects.script_changes import ScriptChanges
from tracekit.subjects.subject import Subject


class TF32(Optimization):
    """fp32 GEMMs on tensor cores, at the TF32 peak. The bytes stay the same.

    *Refused* on GPUs before compute capability 8.0.
    """

    id = "tf32"
    title = "TF32 GEMMs"
    reads_costs = True
    costs = Costs("unchanged", "3 decimal digits in GEMMs", "one line")
    caveats = ("GEMMs keep 10 bits of mantissa; sums stay in fp32.",)

    def objection(self, base: Baseline) -> str | None:
        if not base.gpu.supports("tf32"):
            return f"{base.gpu.name} has no TF32 (it came with compute capability 8.0)."
        if not _fp32_products(base).any():
            return "No GEMM runs in fp32."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        return retimed_by_name(base, retimed(base.ops, _with_tf32, base.gpu, outcome), "tf32", outcome)

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        return now_in(super().applied(base, outcome), "tf32")

    def reason(self, base: Baseline) -> Statements:
        return (say("tf32", share_of(base, _fp32_products(base))),)

    def evidence(self, base: Baseline) -> Statements:
        return largest(base, _fp32_products(base))

    def how_to(self, base: Baseline) -> str:
        return 'torch.set_float32_matmul_precision("high")'

    def change_script(self, changes: ScriptChanges) -> ScriptChanges:
        if not changes.on_cuda:
            raise refused(self, "It applies only to GEMMs on tensor cores.")
        return replace(changes, tf32=True)

    def apply(self, subject: Subject) -> Subject:
        if not subject.on_cuda or subject.settings.dtype != "fp32":
            raise refused(self, "It applies only to fp32 GEMMs on tensor cores.")
        return replace(subject, settings=replace(subject.settings, dtype="tf32")).with_own_weights()


def _fp32_products(base: Baseline) -> Rows:
    return where(base.ops, _is_fp32_product) | in_precision(base, "fp32")


def _is_fp32_product(cost: Cost | None) -> bool:
    return cost is not None and cost.family in ("gemm", "convolution") and cost.precision == "fp32"


def _with_tf32(cost: Cost) -> Cost:
    return replace(cost, precision="tf32") if _is_fp32_product(cost) else cost
