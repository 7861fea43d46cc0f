"""Parses what a German NeMo Gym service sends with the nemo-gym package's own data models; prints what it read."""

import json
import sys

from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming

replies = json.load(sys.stdin)
out = []
for reply in replies:
    params = NeMoGymResponseCreateParamsNonStreaming.model_validate(reply["responses_create_params"])
    response = NeMoGymResponse.model_validate(reply["response"])
    types = [item.type for item in response.output]
    out.append({"tools": len(params.tools), "types": types, "reward": float(reply["reward"])})
print(json.dumps(out))
