"""Drives a model endpoint with the openai package; prints what it read as JSON. Reads {url, token, messages, tools}."""

import json
import sys

import openai

given = json.load(sys.stdin)
client = openai.OpenAI(base_url=given["url"] + "/v1", api_key=given["token"], max_retries=0)
[model] = [entry.id for entry in client.models.list()]
messages, tools = given["messages"], given["tools"]


def chat(**more):
    settings = {"model": model, "messages": messages, "tools": tools, "temperature": 0.6, "seed": 1, "max_tokens": 60}
    return client.chat.completions.create(**{**settings, **more})


out = {"model": model}
whole = chat(logprobs=True)
turn = whole.choices[0].message
out["turn"] = turn.model_dump()
out["usage"] = whole.usage.model_dump()
out["finish_reason"] = whole.choices[0].finish_reason
out["logprobs"] = [entry.logprob for entry in whole.choices[0].logprobs.content]

# The message object itself goes back, as agents written with the package send it.
results = [{"role": "tool", "tool_call_id": call.id, "content": "42"} for call in turn.tool_calls or []]
second = chat(messages=[*messages, turn, *results])
out["second"] = second.choices[0].message.model_dump()

text, calls = "", []
for chunk in chat(stream=True, stream_options={"include_usage": True}):
    for choice in chunk.choices:
        text += choice.delta.content or ""
        calls += choice.delta.tool_calls or []
    if chunk.usage:
        out["stream_usage"] = chunk.usage.model_dump()
out["stream"] = {"content": text, "calls": [[call.function.name, call.function.arguments] for call in calls]}
with client.chat.completions.stream(
    model=model, messages=messages, tools=tools, temperature=0.6, seed=1, max_tokens=60
) as events:
    for _ in events:
        pass
    final = events.get_final_completion().choices[0]
out["accumulated"] = {"raw_text": final.message.model_dump().get("raw_text"), "finish_reason": final.finish_reason}

flat = [{"type": "function", **tool["function"], "strict": False} for tool in tools]
response = client.responses.create(
    model=model, input=messages, tools=flat, temperature=0.6, max_output_tokens=60, extra_body={"seed": 1}
)
out["response"] = response.model_dump()

errors = []
for attempt in (
    lambda: chat(n=2),
    lambda: chat(model="gpt-5"),
    lambda: openai.OpenAI(base_url=given["url"] + "/v1", api_key="wrong", max_retries=0).models.list(),
    lambda: client.completions.create(model=model, prompt="x"),
):
    try:
        attempt()
    except openai.APIStatusError as error:
        errors.append([type(error).__name__, error.code, error.param])
out["errors"] = errors
print(json.dumps(out))
