"""A toy tokenizer for a model whose weights are dummies: tokenizer.py FOLDER"""

import json
import sys

from tokenizers import Tokenizer, models, pre_tokenizers

words = ["<s>", "</s>", "<unk>"] + [chr(0x100 + i) for i in range(256)] + ["w%d" % i for i in range(1000)]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.save(sys.argv[1] + "/tokenizer.json")
with open(sys.argv[1] + "/tokenizer_config.json", "w") as file:
    json.dump(
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "model_max_length": 40960,
        },
        file,
    )
