"""A plugin of SGLang (entry point in sglang.srt.plugins): dummy weights under which every all-reduce matters.

SGLang's own dummies are within 1e-3, norms too, and the same on all ranks: layers then add next to nothing to what the
embedding says, and a rank that took its own part twice would not be noticed. Here norms are one, the rest is as large
as the width allows, and each rank draws its own. Tokens then hang on the last bit of every sum.
"""

import math
import zlib


def fill(model, *_, **__):
    import torch
    from sglang.srt.distributed import get_tensor_model_parallel_rank

    rank = get_tensor_model_parallel_rank()
    for name, value in model.state_dict().items():
        if not torch.is_floating_point(value) or "cos_sin" in name:
            continue
        if value.dim() == 1:
            value.fill_(1)
            continue
        generator = torch.Generator(device=value.device).manual_seed(8 * zlib.crc32(name.encode()) + rank)
        value.normal_(0, 1 / math.sqrt(value.shape[-1]), generator=generator)


def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register("sglang.srt.model_loader.loader.initialize_dummy_weights", fill, HookType.REPLACE)
