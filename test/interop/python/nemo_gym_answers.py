"""Parses answers of a model endpoint with the nemo-gym package's own data models; prints the token ids it read."""

import json
import sys

from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymResponse

given = json.load(sys.stdin)
fields = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
item = NeMoGymResponse.model_validate(given["response"]).output[-1]
message = NeMoGymChatCompletion.model_validate(given["completion"]).choices[0].message
print(
    json.dumps(
        {
            "response": {name: getattr(item, name) for name in fields},
            "completion": {name: getattr(message, name) for name in fields},
        }
    )
)
