"""What SGLang generates on the active device: ``generate.py CHECKPOINT REQUEST``, the request in JSON.

It has ``prompts``, lists of tokens; ``sampling``, SGLang's parameters; ``engine``, keywords of Engine. A line of the
output has the tokens by prompt.
"""

import json
import sys

import sglang


def main() -> None:
    request = json.loads(sys.argv[2])
    engine = {"skip_tokenizer_init": True, "context_length": 512, "chunked_prefill_size": 64, "max_total_tokens": 4096}
    llm = sglang.Engine(model_path=sys.argv[1], **{"dtype": "float32", "random_seed": 0} | engine | request["engine"])
    outputs = llm.generate(input_ids=request["prompts"], sampling_params={"ignore_eos": True} | request["sampling"])
    print("\n" + json.dumps([output["output_ids"] for output in outputs]), flush=True)
    llm.shutdown()


if __name__ == "__main__":
    main()
