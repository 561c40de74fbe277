"""Without the machine's facts a number cannot be compared; secrets must not travel with them."""

import json

from tuner.runs.machine import inherited_variables, machine_facts


def test_facts_are_json_with_or_without_a_gpu():
    facts = json.loads(json.dumps(machine_facts()))
    assert facts["cpu"]
    assert facts["cores"] >= 1
    assert isinstance(facts["gpus"], list)
    assert (facts["driver"] is None) == (facts["cuda"] is None)


def test_only_variables_that_change_a_server_are_kept_and_secrets_are_masked():
    kept = inherited_variables(
        {
            "NCCL_PROTO": "LL",
            "SGLANG_API_KEY": "very-secret",
            "SGLANG_TORCH_PROFILER_DIR": "/tmp/x",
            "CUDA_VISIBLE_DEVICES": "0,1",
            "CUDA_VISIBLE_DEVICES_OLD": "0",
            "HF_TOKEN": "hf_secret",
            "PATH": "/bin",
        }
    )
    assert kept == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_PROTO": "LL",
        "SGLANG_API_KEY": "${SGLANG_API_KEY}",
        "SGLANG_TORCH_PROFILER_DIR": "/tmp/x",
    }
