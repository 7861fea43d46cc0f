"""Puts the nemo-gym package's own model server (vllm_model) in front of a model endpoint and has a conversation through
it; prints what it answered. Reads {url, token, messages, tools, inline}."""

import json
import sys

from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf
from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig
from starlette.testclient import TestClient

given = json.load(sys.stdin)


def converse(inline):
    config = VLLMModelConfig(
        host="127.0.0.1",
        port=1,
        entrypoint="app.py",
        name="policy_model",
        base_url=given["url"] + "/v1",
        api_key=given["token"],
        model="embedded-policy",
        return_token_id_information=True,
        request_prompt_and_generation_token_ids=inline,
        uses_reasoning_parser=True,
    )
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=11000), global_config_dict=OmegaConf.create({})
    )
    app = VLLMModel(config=config, server_client=client).setup_webserver()
    with TestClient(app) as model:

        def ask(items):
            body = {"input": items, "tools": given["tools"], "temperature": 0.6, "max_output_tokens": 60}
            reply = model.post("/v1/responses", json=body)
            assert reply.status_code == 200, reply.text
            return reply.json()

        first = ask(given["messages"])["output"]
        results = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "42"}
            for item in first
            if item["type"] == "function_call"
        ]
        second = ask([*given["messages"], *first, *results])["output"]
        overflow = ask([{"role": "user", "content": "x " * 3000}])
        return {"turns": [first, second], "overflow": overflow["incomplete_details"]}


# The ids come inline, or from log-probs and /tokenize. The package keeps one HTTP client a process, bound to its loop.
print(json.dumps(converse(given["inline"])))
