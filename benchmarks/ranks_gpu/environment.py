"""Variables that torch and NCCL read when they are first used; imported before them.

NVLink multicast is off. A question whether there is a GPU must not start CUDA before the ranks fork.
"""

import os

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
