"""What the makers of accelerators publish about each chip; open it to add a chip or to correct a figure.

Sources:

- Google Cloud's pages of TPU v5e, v5p and v6e: memory, bandwidths, and the "ICI bandwidth" of a chip, which is the sum
  of its links in one direction.
- NVIDIA's data sheets of H100 SXM, H200 SXM and A100 80GB SXM: dense products, and NVLink, which they give for both
  directions together; those of DGX H100 (a 400 Gbit/s adapter for each GPU) and DGX A100 (200 Gbit/s).
- `charlm.core.flops`: the peaks in bfloat16.
- The bytes that programs can use: for TPUs, the compiler's message when a program does not fit; for GPUs, the share
  that JAX takes unless XLA_PYTHON_CLIENT_MEM_FRACTION is set.
"""

from __future__ import annotations

from typing import NamedTuple

from charlm.core.flops import PEAKS

GIB = 2**30
GPU_SHARE = 0.75  # of a GPU's memory that JAX takes at its start


class Gpu(NamedTuple):
    """What the GPU compiler must know of a GPU that this machine does not have.

    Attributes:
      name: the GPU's name, as the driver gives it.
      capability: the compute capability.
      cores: the number of streaming multiprocessors.
      units: the number of float32 units of a core.
      clock_ghz: the highest clock rate.
      shared: bytes of shared memory of a core.
      shared_block: the most bytes of shared memory that one block may use.
      cache: bytes of the second-level cache.
    """

    name: str
    capability: tuple[int, int]
    cores: int
    units: int
    clock_ghz: float
    shared: int
    shared_block: int
    cache: int


class Chip(NamedTuple):
    """A kind of chip. A rate of 0 is not known.

    Attributes:
      platform: "tpu", "gpu" or "cpu", as JAX names it.
      memory: bytes of memory in all.
      usable: bytes of memory that programs can use.
      bandwidth: bytes a second between the chip and its memory.
      peak: FLOP/s of dense bfloat16 products.
      float32: FLOP/s of float32 products in JAX's default precision: bfloat16 passes on TPUs, TF32 on GPUs.
      link: bytes a second that leave the chip over one link of a torus (TPU), or to all others of its node (GPU).
      network: bytes a second that leave the chip for another node.
      wraps: the smallest size of a torus axis that is a ring; shorter axes are lines.
      per_node: the number of chips of a node.
      gpu: what the GPU compiler must know; None for other chips.
    """

    platform: str
    memory: int
    usable: int
    bandwidth: float
    peak: float
    float32: float
    link: float
    network: float = 0.0
    wraps: int = 0
    per_node: int = 4
    gpu: Gpu | None = None


def _tpu(memory: float, usable: float, bandwidth: float, peak: float, link: float, wraps: int) -> Chip:
    return Chip("tpu", int(memory * GIB), int(usable * GIB), bandwidth, peak, peak, link, wraps=wraps)


def _gpu(memory: int, bandwidth: float, peak: float, link: float, network: float, gpu: Gpu) -> Chip:
    usable = int(memory * GPU_SHARE)
    return Chip("gpu", memory, usable, bandwidth, peak, peak / 2, link, network, per_node=8, gpu=gpu)


_HOPPER = {"capability": (9, 0), "cores": 132, "units": 128, "clock_ghz": 1.98,
           "shared": 233_472, "shared_block": 232_448, "cache": 52_428_800}  # fmt: skip
_AMPERE = {"capability": (8, 0), "cores": 108, "units": 64, "clock_ghz": 1.41,
           "shared": 167_936, "shared_block": 166_912, "cache": 41_943_040}  # fmt: skip

CHIPS: dict[str, Chip] = {
    "v5e": _tpu(16, 15.75, 819e9, PEAKS["TPU v5e"], 50e9, wraps=16),
    "v5p": _tpu(95.74, 95.74, 2765e9, PEAKS["TPU v5p"], 100e9, wraps=4),
    "v6e": _tpu(32, 31.25, 1638e9, PEAKS["TPU v6e"], 100e9, wraps=16),
    "h100": _gpu(84_942_979_072, 3352e9, PEAKS["H100"], 450e9, 50e9, Gpu("NVIDIA H100 80GB HBM3", **_HOPPER)),
    "h200": _gpu(151_397_597_184, 4800e9, PEAKS["H200"], 450e9, 50e9, Gpu("NVIDIA H200 141GB HBM3e", **_HOPPER)),
    "a100": _gpu(85_100_068_864, 2039e9, PEAKS["A100"], 300e9, 25e9, Gpu("NVIDIA A100-SXM4-80GB", **_AMPERE)),
    # The processor of this machine: memory alone is known, and only when asked.
    "cpu": Chip("cpu", 0, 0, 0.0, 0.0, 0.0, 0.0),
}


def target_config(chip: Chip) -> str:
    """Returns the description of a GPU that XLA's GPU compiler reads, a GpuTargetConfigProto in text form."""
    gpu = chip.gpu
    assert gpu is not None  # only GPUs are described so
    info = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 49_152,
        "shared_memory_per_core": gpu.shared,
        "threads_per_core_limit": 2048,
        "core_count": gpu.cores,
        "fpus_per_core": gpu.units,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65_535,
        "block_dim_limit_z": 65_535,
        "memory_bandwidth": int(chip.bandwidth),
        "l2_cache_size": gpu.cache,
        "clock_rate_ghz": gpu.clock_ghz,
        "device_memory_size": chip.memory,
        "shared_memory_per_block_optin": gpu.shared_block,
        "registers_per_core_limit": 65_536,
        "registers_per_block_limit": 65_536,
        "thread_dim_limit_x": 1024,
        "thread_dim_limit_y": 1024,
        "thread_dim_limit_z": 64,
    }
    lines = [f"  {name}: {value}" for name, value in info.items()]
    major, minor = gpu.capability
    lines.append(f"  cuda_compute_capability {{ major: {major} minor: {minor} }}")
    return "\n".join(
        [
            "gpu_device_info {",
            *lines,
            "}",
            'platform_name: "CUDA"',
            "dnn_version_info { major: 9 minor: 10 }",
            "runtime_version { major: 12 minor: 9 }",
            f'device_description_str: "{gpu.name}"',
        ]
    )
