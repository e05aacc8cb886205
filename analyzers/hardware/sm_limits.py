"""The resources of one multiprocessor, and how many blocks of a kernel fit at a time."""

import msgspec

from tracekit.analyzers.hardware.gpu import GPU

_KB = 1024
_REGISTERS_OF_A_WARP = 256
"""Registers are allocated to a warp in multiples of this."""


class SMLimits(msgspec.Struct, frozen=True):
    """The limits of one multiprocessor (one compute unit of AMD)."""

    warps: int
    blocks: int
    registers: int
    """Registers of 32 bits."""
    shared_bytes: int
    """Shared memory of the multiprocessor."""
    shared_block_bytes: int
    """Shared memory that one block may use."""
    reserved_bytes: int
    """Shared memory that the system reserves for each block."""
    threads_of_a_warp: int = 32
    registers_of_a_thread: int = 255

    def resident_blocks(self, warps: int, registers: int, shared_bytes: int) -> int:
        """Return how many blocks of `warps` warps, `registers` per thread and `shared_bytes` fit; 0 if none does."""
        if shared_bytes > self.shared_block_bytes or registers > self.registers_of_a_thread:
            return 0
        warp_registers = -(-registers * self.threads_of_a_warp // _REGISTERS_OF_A_WARP) * _REGISTERS_OF_A_WARP
        by_shared = self.shared_bytes // (shared_bytes + self.reserved_bytes) if shared_bytes else self.blocks
        return min(self.blocks, self.warps // warps, self.registers // (warp_registers * warps), by_shared)

    def occupancy(self, warps: int, registers: int, shared_bytes: int) -> float:
        """Return the number of resident warps divided by the maximum, 0 to 1."""
        return self.resident_blocks(warps, registers, shared_bytes) * warps / self.warps


_NVIDIA = {
    (6, 0): SMLimits(64, 32, 65536, 64 * _KB, 48 * _KB, 0),
    (6, 1): SMLimits(64, 32, 65536, 96 * _KB, 48 * _KB, 0),
    (7, 0): SMLimits(64, 32, 65536, 96 * _KB, 96 * _KB, 0),
    (7, 5): SMLimits(32, 16, 65536, 64 * _KB, 64 * _KB, 0),
    (8, 0): SMLimits(64, 32, 65536, 164 * _KB, 163 * _KB, _KB),
    (8, 6): SMLimits(48, 16, 65536, 100 * _KB, 99 * _KB, _KB),
    (8, 9): SMLimits(48, 24, 65536, 100 * _KB, 99 * _KB, _KB),
    (9, 0): SMLimits(64, 32, 65536, 228 * _KB, 227 * _KB, _KB),
    (10, 0): SMLimits(64, 32, 65536, 228 * _KB, 227 * _KB, _KB),
    (12, 0): SMLimits(48, 24, 65536, 100 * _KB, 99 * _KB, _KB),
}
_CDNA3 = SMLimits(32, 16, 131072, 64 * _KB, 64 * _KB, 0, threads_of_a_warp=64, registers_of_a_thread=512)


def sm_limits(gpu: GPU) -> SMLimits:
    """Return the limits by compute capability. An unlisted one has those of the nearest lower one.

    Sources: CUDA programming guide, compute capabilities, technical specifications (9.0 agrees with what Nsight
    Compute reports on an H200); AMD Instinct MI300 instruction set architecture reference.
    """
    if gpu.vendor != "nvidia":
        return _CDNA3
    before = [capability for capability in _NVIDIA if capability <= gpu.compute_capability]
    return _NVIDIA[max(before, default=min(_NVIDIA))]
