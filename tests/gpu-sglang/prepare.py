"""Compile one of the kernels that SGLang 0.5.11 compiles at first use, so that ranks do not all wait for it later.

prepare.py NAME [RANKS]
"""

import sys
import time

import torch
from sglang.jit_kernel import activation, clamp_position, kvcache, norm, rope

KV_BYTES = 8 * 128 * 2 // (int(sys.argv[2]) if len(sys.argv) > 2 else 4)  # of one token in one layer, a rank's share

KERNELS = {
    "activation": lambda: activation._jit_activation_module(torch.bfloat16),
    "rope": lambda: rope._jit_fused_rope_module(True, 128, torch.bfloat16),
    "norm": lambda: norm._jit_qknorm_module(128, torch.bfloat16),
    "kvcache": lambda: kvcache._jit_kvcache_module(KV_BYTES),
    "clamp": lambda: clamp_position._jit_clamp_position_module(torch.int64),
}

started = time.time()
KERNELS[sys.argv[1]]()
print(sys.argv[1], "compiled in %.1f s" % (time.time() - started))
