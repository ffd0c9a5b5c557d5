"""Asks vLLM about adapters, in process. Runs with the Python of an engine's environment, and imports nothing of ours.

Usage: ask.py BASE ADAPTERS CEILING OUT. OUT gets a JSON object: folder → verdict and what the engine said.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
    OMP_NUM_THREADS="1",
    HF_HUB_OFFLINE="1",
    DO_NOT_TRACK="1",
)

import torch  # type: ignore[import-not-found]

_tensor = torch.tensor


def _unpinned(*args: Any, **options: Any) -> Any:
    """Make a tensor in plain memory: the torch of PyPI is built for CUDA, and pins no memory without a GPU."""
    return _tensor(*args, **{name: value for name, value in options.items() if name != "pin_memory"})


torch.tensor = _unpinned  # some engines ask for pinned memory on a CPU, too

from vllm import LLM, SamplingParams  # type: ignore[import-not-found]  # noqa: E402 - as above
from vllm.lora.request import LoRARequest  # type: ignore[import-not-found]  # noqa: E402 - as above

Answer = tuple[list[int], list[float]]
"""Tokens, and the logarithms of their probabilities."""

PROMPT = {"prompt_token_ids": [1, 40, 41, 42, 43, 44, 45, 46]}


def main() -> None:
    """Ask about each folder, and write down what is said."""
    base, adapters, ceiling, out = sys.argv[1:]
    llm = LLM(
        model=base,
        skip_tokenizer_init=True,
        enable_lora=True,
        max_lora_rank=int(ceiling),
        max_loras=1,
        max_cpu_loras=2,
        enforce_eager=True,
        dtype="float32",
        max_model_len=64,
        max_num_seqs=2,
        enable_prefix_caching=False,
        distributed_executor_backend="uni",
    )
    sampling = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, logprobs=0, detokenize=False)

    def complete(request: Any = None) -> Answer:
        answer = llm.generate([PROMPT], sampling, lora_request=request, use_tqdm=False)[0].outputs[0]
        numbers = [next(iter(one.values())).logprob for one in answer.logprobs]
        return list(answer.token_ids), numbers

    plain = complete()
    verdicts: dict[str, dict[str, Any]] = {}
    for number, folder in enumerate(sorted(Path(adapters).iterdir()), start=1):
        request = LoRARequest(folder.name, number, str(folder))
        verdicts[folder.name] = judge(llm, request, complete, plain)
        with contextlib.suppress(Exception):
            llm.llm_engine.remove_lora(number)
        after = complete()
        if not same(after, plain):
            verdicts[folder.name]["spoils"] = True  # answers of the base differ from then on
            plain = after
    Path(out).write_text(json.dumps(verdicts, indent=1, sort_keys=True))


def judge(llm: Any, request: Any, complete: Any, plain: Answer) -> dict[str, Any]:
    """Return the verdict: refuses, serves, no effect, or not finite."""
    try:
        llm.llm_engine.add_lora(request)
        answer = complete(request)
    except Exception as error:
        return {
            "verdict": "refuses",
            "said": f"{type(error).__name__}: {error}"[:160].replace(str(request.lora_path), ""),
        }
    if any(not math.isfinite(number) for number in answer[1]):
        return {"verdict": "not finite"}
    return {"verdict": "no effect" if same(answer, plain) else "serves"}


def same(one: Answer, other: Answer) -> bool:
    """Whether two answers agree, apart from rounding."""
    close = all(abs(a - b) < 1e-4 for a, b in zip(one[1], other[1], strict=False))
    return one[0] == other[0] and close


if __name__ == "__main__":
    main()
